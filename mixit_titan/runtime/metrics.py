"""torchtitan's metrics, and `metrics.jsonl` in the run's folder."""

import math
import netrc
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torchtitan.components.metrics import (
    BaseLogger,
    LoggerContainer,
    MetricsProcessor,
    _get_metrics_rank,
)
from torchtitan.distributed import ParallelDims

from mixit_titan.files import json_text, write_text
from mixit_titan.json_form import COUNT, NUMBER
from mixit_titan.log import logger
from mixit_titan.reading import WrongFile, read_json_lines, read_text, regular

_WANDB_BYTES = 256
EVAL = "eval/"
"""The prefix of an evaluation's metrics."""
BY_SOURCE = "sources/"
"""The prefix of a source's metrics, before its own name."""
_FIGURE = (NUMBER, None)
_FIGURES = ("loss", "tokens_per_s", "validation_loss", "perplexity", "accuracy")
_LINE = {"step": COUNT, "seconds?": float, **{f"{name}?": _FIGURE for name in _FIGURES}}
"""The keys that readers of metrics.jsonl rely on."""


class JsonLinesLogger(BaseLogger):
    """Writes one line per logged step, validation and evaluation; it appends, so that nothing is
    lost."""

    def __init__(self, path: Path, world_size: int) -> None:
        self.path, self.world_size = path, world_size
        self.start = time.perf_counter()
        self.seconds_before = 0.0  # spent by earlier starts of the run
        self.continued = False

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Append a line with torchtitan's metrics under our names."""
        validation = "validation_metrics/loss" in metrics
        evaluation = {
            key.removeprefix(EVAL): value for key, value in metrics.items() if key.startswith(EVAL)
        }
        if not self.continued:
            done = ("loss",) if validation else ("loss", "validation_loss") if evaluation else ()
            self._continue_at(step, done)
        if evaluation:
            line = {"eval": evaluation}
        else:
            line = self._validation(metrics) if validation else self._training(metrics)
            line |= _by_source(metrics)
        seconds = self.seconds_before + time.perf_counter() - self.start
        with open(self.path, "a", opener=regular) as file:
            file.write(json_text({"step": step, **line, "seconds": round(seconds, 3)}) + "\n")

    def _training(self, metrics: dict[str, Any]) -> dict[str, Any]:
        line = {
            "loss": metrics["loss_metrics/global_avg_loss"],
            "grad_norm": metrics["grad_norm"],
            # The last group contains what optimizer.groups does not name.
            "lr": [value for key, value in metrics.items() if key.startswith("lr/")][-1],
            "tokens": int(metrics["n_tokens_seen"]),
            "tokens_per_s": round(metrics["throughput(tps)"] * self.world_size, 1),
            "tflops_per_rank": metrics["tflops"],
            "memory_gib": metrics["memory/max_reserved(GiB)"],
        }
        if "mfu(%)" in metrics:
            line["mfu_percent"] = metrics["mfu(%)"]
        for key in ("skipped_batches", "trained_params"):
            if key in metrics:
                line[key] = metrics[key]
        return line

    def _validation(self, metrics: dict[str, Any]) -> dict[str, Any]:
        names = {"loss": "validation_loss", "perplexity": "perplexity"}
        names |= {"bits_per_byte": "bits_per_byte", "tokens": "validation_tokens"}
        return {ours: metrics[f"validation_metrics/{name}"] for name, ours in names.items()}

    def _continue_at(self, step: int, done: tuple[str, ...]) -> None:
        """Keep what was logged before `step`, and drop what this run repeats. A run that begins
        with a validation or an evaluation does not repeat what precedes it within the same step:
        lines with one of the keys in `done`."""
        self.continued = True
        kept = [
            line
            for line in read_metrics(self.path)
            if line["step"] < step or (line["step"] == step and any(key in line for key in done))
        ]
        if kept:
            self.seconds_before = kept[-1].get("seconds", 0.0)
        write_text(self.path, "".join(json_text(line) + "\n" for line in kept))


def _by_source(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a mixture: {"sources": {"web": {"rows": 700, "repeats": 0}, ...}}."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in metrics.items():
        if key.startswith(BY_SOURCE):
            source, _, name = key.removeprefix(BY_SOURCE).rpartition("/")
            found.setdefault(source, {})[name] = value
    return {"sources": found} if found else {}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, up to a broken one: a kill may have truncated the last."""
    return read_json_lines(path, _LINE)


class Metrics(MetricsProcessor):
    """torchtitan's metrics, which also go to metrics.jsonl, with skipped batches and sources."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        """[metrics]: torchtitan's keys, and two that the program sets."""

        last_step: int = -1
        """Set from training.steps: the last step is always logged."""
        run_name: str = ""
        """Set from the folder and the model: the name of the run in wandb, unless WANDB_RUN_NAME is
        set."""

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        if math.isnan(self.gpu_peak_flops):
            # With this flag torchtitan 0.3.0 reports no MFU ("N/A"), which is what we want where
            # the device's peak is unknown. It has no other effect there.
            self.has_quantization = True
        # Set by the trainer; the second one where what is trained changes in the run.
        self.skipped_batches = self.trained_params = 0
        self.sources: Callable[[], dict[str, tuple[int, int]]] = dict  # for a mixture, its `given`

    def log(self, *args: Any, extra_metrics: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Log torchtitan's metrics with ours added."""
        ours = {"skipped_batches": self.skipped_batches, "trained_params": self.trained_params}
        extra_metrics = (extra_metrics or {}) | {k: v for k, v in ours.items() if v}
        for name, (rows, repeats) in self.sources().items():
            figures = {"rows": rows, "repeats": repeats}
            extra_metrics |= {f"{BY_SOURCE}{name}/{key}": value for key, value in figures.items()}
        super().log(*args, extra_metrics=extra_metrics, **kwargs)

    def should_log(self, step: int) -> bool:
        """Whether to log this step; the last one always is."""
        return step == self.config.last_step or super().should_log(step)

    def _build_metric_logger(
        self,
        *,
        config: Config,
        parallel_dims: ParallelDims,
        dump_folder: str,
        pp_schedule: str,
        **kwargs: Any,
    ) -> BaseLogger:
        rank = _get_metrics_rank(parallel_dims=parallel_dims, pp_schedule=pp_schedule)
        logs = torch.distributed.get_rank() == rank
        if config.enable_wandb and (logs or config.save_for_all_ranks):
            never_prompt_for_wandb()
            _keep_wandb_run(Path(dump_folder))
            if config.run_name:
                os.environ.setdefault("WANDB_RUN_NAME", config.run_name)
        loggers = LoggerContainer()
        loggers.add_logger(
            super()._build_metric_logger(
                config=config,
                parallel_dims=parallel_dims,
                dump_folder=dump_folder,
                pp_schedule=pp_schedule,
                **kwargs,
            )
        )
        if logs:
            path = Path(dump_folder) / "metrics.jsonl"
            loggers.add_logger(JsonLinesLogger(path, parallel_dims.world_size))
        return loggers


def never_prompt_for_wandb() -> None:
    """Without an account, wandb prompts on the terminal: log offline instead, and say so."""
    os.environ.setdefault("WANDB_PROJECT", "mixit_titan")
    if "WANDB_MODE" in os.environ or os.environ.get("WANDB_API_KEY"):
        return
    try:
        has_account = netrc.netrc().authenticators("api.wandb.ai") is not None
    except (FileNotFoundError, netrc.NetrcParseError):
        has_account = False
    if not has_account:
        os.environ["WANDB_MODE"] = "offline"
        logger.warning("No wandb account on this machine: logging offline (`wandb sync` uploads)")


def _keep_wandb_run(folder: Path) -> None:
    """Make a restarted run continue the same wandb run."""
    file = folder / f"wandb_run_{torch.distributed.get_rank()}"
    if not file.exists():
        write_text(file, os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4))
    named = read_text(file, limit=_WANDB_BYTES).strip()
    if not named.isprintable() or not named:
        raise WrongFile(file, "it is not the name of a wandb run")
    os.environ["WANDB_RUN_ID"] = named
    os.environ.setdefault("WANDB_RESUME", "allow")
