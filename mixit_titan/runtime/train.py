"""One rank of a training run, from its config to its end."""

import logging
import os
from pathlib import Path

from torchtitan.components.metrics import _get_metrics_rank
from torchtitan.distributed import ParallelDims
from torchtitan.observability import structured_logger
from torchtitan.trainer import Trainer

from mixit_titan.log import init_logger, logger
from mixit_titan.reading import check_kinds
from mixit_titan.runtime.launch import leave_process_group
from mixit_titan.runtime.watch import start_watch, stop_watch


def train(config: Trainer.Config) -> None:
    """Build the trainer of a config and train, as one of the ranks."""
    _log_to_screen_and_file(Path(config.dump_folder), _rank_with_loss(config))
    structured_logger.init_structured_logger(
        source="training",
        output_dir=config.dump_folder,
        enable=config.debug.enable_structured_logging,
    )
    trainer = None
    start_watch(config.watch, config.dump_folder)
    try:
        try:
            trainer = config.build()
            trainer.train()
        finally:
            if trainer is not None:
                trainer.close()
        leave_process_group()
    finally:
        stop_watch()


def _rank_with_loss(config: Trainer.Config) -> int:
    """Rank 0, or with pipeline parallelism a rank of the last stage: the others have no loss."""
    parallelism = config.parallelism
    dims = ParallelDims.from_config(parallelism, int(os.environ["WORLD_SIZE"]))
    schedule = parallelism.pipeline_parallel_schedule
    return _get_metrics_rank(parallel_dims=dims, pp_schedule=schedule)


def _log_to_screen_and_file(folder: Path, shown: int) -> None:
    """Log one rank to the screen, where torchtitan would log all of them, and each rank to a file
    of its own."""
    rank = int(os.environ["RANK"])
    init_logger()
    screen = logger.handlers[0]
    if rank != shown:
        screen.setLevel(logging.ERROR)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    log = folder / "logs" / f"rank_{rank}.log"
    check_kinds(log.parent, files=(log.name,))
    file = logging.FileHandler(log)
    file.setFormatter(screen.formatter)
    file.handleError = lambda record: None  # a full disk would give a traceback per line
    logger.addHandler(file)
