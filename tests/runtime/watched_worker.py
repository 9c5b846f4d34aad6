"""A rank without a model, which is watched while it does as it is told:

    python -m tests.runtime.watched_worker FOLDER RANK RANKS [unwatched] WORDS ...

`steps 20`: as many steps of a few milliseconds. `burst 20`: as many that take no time. `step 3`,
`validation 3`, `save 3`: one that takes 3 s. `stop`: SIGSTOP to itself. `fork`: as a loader does,
whose workers hold the rank's files. `wedge`: sits in C for a minute and keeps Python's lock.
"""

import ctypes
import os
import random
import signal
import sys
import time

from mixit_titan.runtime.watch import WatchConfig, begin, start_watch, stop_watch

LIMIT = 2.0


def main(folder: str, rank: int, ranks: int, acts: list[str]) -> None:
    config = WatchConfig(start=60, first_step=60, step=LIMIT, validation=LIMIT, save=60)
    if acts[0] == "unwatched":
        config.enable = False
        acts = acts[1:]
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    start_watch(config, folder)
    print(os.getpid(), flush=True)
    chance, step = random.Random(rank), 0
    for act in acts:
        word, _, number = act.partition(" ")
        step += 1
        if word == "steps":
            for _ in range(int(number)):
                begin("step", step)
                step += 1
                time.sleep(chance.choice([0, 0, 0, 0.001, 0.01]))
            begin("step", step)
        elif word == "burst":
            for _ in range(int(number)):
                begin("step", step)
        elif word == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif word == "fork":
            if os.fork() == 0:
                os.closerange(1, 3)
                time.sleep(45)
                os._exit(0)
        elif word == "wedge":
            wedge()
        else:
            begin(word, step)
            time.sleep(float(number))
    stop_watch()


def wedge() -> None:
    ctypes.PyDLL(None).sleep(60)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
