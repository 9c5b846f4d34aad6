"""One rank of a training run, from its config to its end."""

import logging
import os
import signal
import threading
from pathlib import Path
from types import FrameType

from torchtitan.components.metrics import _get_metrics_rank
from torchtitan.distributed import ParallelDims
from torchtitan.observability import structured_logger
from torchtitan.tools.logging import init_logger, logger
from torchtitan.trainer import Trainer

from mixit_titan.runtime.launch import leave_process_group

_SECONDS_TO_CLOSE = 10


def train(config: Trainer.Config) -> None:
    """Build torchtitan's Trainer and train. Ctrl-C ends the run; its checkpoints stay."""
    # CUDA's allocator reads it at its first allocation. Segments that grow are not fragmented by a
    # validation or a recomputation of another size.
    if not os.environ.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}:
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    _log_to_screen_and_file(Path(config.dump_folder), _rank_with_loss(config))
    structured_logger.init_structured_logger(
        source="training",
        output_dir=config.dump_folder,
        enable=config.debug.enable_structured_logging,
    )
    interrupted = _end_on_interrupt(config.dump_folder)
    trainer = None
    try:
        trainer = config.build()
        trainer.train()
    except BaseException as error:  # a CheckpointException is not an Exception
        if interrupted.is_set():  # torch.distributed wraps an interrupt in errors of its own
            raise KeyboardInterrupt from error
        raise
    finally:
        if trainer is not None:
            trainer.close()
    leave_process_group()


def _end_on_interrupt(folder: str) -> threading.Event:
    """Say what to do next, and leave by KeyboardInterrupt; or, where that is swallowed or closing
    hangs (a save and a collective can do either), at once after some seconds."""
    interrupted = threading.Event()

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            return  # torchrun passes on what the terminal has sent already
        interrupted.set()
        if os.environ["RANK"] == "0":
            advice = f"Run the same command to go on from the last checkpoint in {folder}"
            os.write(2, f"\nInterrupted. {advice}\n".encode())
        leave = threading.Timer(_SECONDS_TO_CLOSE, os._exit, [128 + signum])
        leave.daemon = True
        leave.start()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)
    return interrupted


def _rank_with_loss(config: Trainer.Config) -> int:
    """Rank 0, or with pipeline parallelism one of the last stage: the others have no loss."""
    parallelism = config.parallelism
    dims = ParallelDims.from_config(parallelism, int(os.environ["WORLD_SIZE"]))
    schedule = parallelism.pipeline_parallel_schedule
    return _get_metrics_rank(parallel_dims=dims, pp_schedule=schedule)


def _log_to_screen_and_file(folder: Path, shown: int) -> None:
    """torchtitan logs every rank to the screen; here one only, and each rank to its own file."""
    rank = int(os.environ["RANK"])
    init_logger()
    screen = logger.handlers[0]
    if rank != shown:
        screen.setLevel(logging.ERROR)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(folder / "logs" / f"rank_{rank}.log")
    file.setFormatter(screen.formatter)
    logger.addHandler(file)
