"""One rank of a training run, from its config to its end."""

import logging
import os
from pathlib import Path

import torch
from torchtitan.observability import structured_logger
from torchtitan.tools.logging import init_logger, logger
from torchtitan.trainer import Trainer


def train(config: Trainer.Config) -> None:
    """Build torchtitan's Trainer and train. Ctrl-C ends the run; its checkpoints stay."""
    _log_to_screen_and_file(Path(config.dump_folder))
    structured_logger.init_structured_logger(
        source="training",
        output_dir=config.dump_folder,
        enable=config.debug.enable_structured_logging,
    )
    trainer = None
    try:
        trainer = config.build()
        trainer.train()
    except KeyboardInterrupt:
        step = trainer.step if trainer is not None else 0
        logger.warning(
            f"Interrupted in step {step}. Run the same command to go on from the "
            f"last checkpoint in {config.dump_folder}"
        )
        raise
    finally:
        if trainer is not None:
            trainer.close()
    # After success only: with NCCL, a rank that failed alone would wait here for the others.
    torch.distributed.destroy_process_group()


def _log_to_screen_and_file(folder: Path) -> None:
    """torchtitan logs every rank to the screen; here rank 0 only, and each rank to its own file."""
    rank = int(os.environ["RANK"])
    init_logger()
    screen = logger.handlers[0]
    if rank != 0:
        screen.setLevel(logging.ERROR)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(folder / "logs" / f"rank_{rank}.log")
    file.setFormatter(screen.formatter)
    logger.addHandler(file)
