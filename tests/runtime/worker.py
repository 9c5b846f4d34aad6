"""One rank that trains the runs of a JSON file one after the other: importing torchtitan takes
longer than any of them. Start it with torchrun: worker.py JOBS.json."""

import json
import os
import sys

from mixit_titan.config.run import load_run
from mixit_titan.runtime.train import train

if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    # torchrun's store keeps the keys of a process group that is gone, and the next one of the same
    # name would trip over them: each run gets a store of its own.
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    # Below the ports that the system gives to whoever asks for any: no connection can be on them.
    first_port = 10_000 + int(os.environ["MASTER_PORT"]) % 20_000
    for number, (config, overrides) in enumerate(jobs):
        os.environ["MASTER_PORT"] = str(first_port + number)
        train(load_run(config, overrides, world_size=int(os.environ["WORLD_SIZE"])))
