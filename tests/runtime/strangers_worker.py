"""Trains from what strangers.py made, one after the other, for `Forkserver.run_ranks`. What a run
said is left in its folder as `said`."""

import os
from pathlib import Path

import torch.distributed as dist

from mixit_titan.config.checks import check_folder
from mixit_titan.config.run import load_run
from mixit_titan.errors import ConfigError
from mixit_titan.runtime.train import train

from .worker import without_naps


def main(ports: list[int], jobs: list[tuple[str, list[str], Path]]) -> None:
    with without_naps():
        for port, (config, overrides, folder) in zip(ports, jobs, strict=True):
            os.environ["MASTER_PORT"] = str(port)
            folder.mkdir(parents=True, exist_ok=True)
            said = "it trained"
            try:
                run = load_run(config, [*overrides, "--dump_folder", str(folder)], world_size=1)
                check_folder(run)
                train(run)
            except ConfigError as error:
                said = str(error)
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            if dist.is_initialized():
                dist.destroy_process_group()
            (folder / "said").write_text(said)
