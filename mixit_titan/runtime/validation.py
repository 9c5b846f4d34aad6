"""Validation on the held-out split: exact sums, the same on any number of ranks."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.components.validate import Validator
from torchtitan.distributed import utils as dist_utils

from mixit_titan.data.batches import Batch
from mixit_titan.data.labels import IGNORE_INDEX
from mixit_titan.data.loader import RowLoader
from mixit_titan.data.token_bytes import token_bytes
from mixit_titan.device import device_type
from mixit_titan.log import logger
from mixit_titan.runtime.divergence import Diverged
from mixit_titan.runtime.metrics import BY_SOURCE
from mixit_titan.runtime.stop import Agreement
from mixit_titan.runtime.watch import begin


class HeldOutValidator(Validator):
    """Reports loss, perplexity and bits per byte before the first step, every `freq` steps and
    after the last step."""

    @dataclass(kw_only=True, slots=True)
    class Config(Validator.Config):
        """[validator]: torchtitan's keys, with rows in place of batches."""

        rows: int = -1
        """Rows of the held-out split, always the same ones; -1: all."""
        steps: int = 1
        """torchtitan's number of batches, which depends on the ranks; use `rows` instead."""
        last_step: int = -1
        """Set from training.steps."""

    agreement: Agreement
    """Set by the trainer: a stop does not wait for the end of a validation."""

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        tokenizer: BaseTokenizer,
        seq_len: int,
        local_batch_size: int,
        **kwargs: Any,
    ) -> None:
        rank = {"dp_world_size": dp_world_size, "dp_rank": dp_rank, "tokenizer": tokenizer}
        rank |= {"seq_len": seq_len, "local_batch_size": local_batch_size}
        super().__init__(config, **rank, **kwargs)
        rows = dataclasses.replace(config.dataloader, infinite=False, limit=config.rows)
        self.loaders = {name: source.build(**rank) for name, source in rows.by_source().items()}
        self.warm = False  # a first validation compiles
        sizes = [token_bytes(tokenizer, x.batches.packed[0].split) for x in self.loaders.values()]
        self.token_bytes = torch.from_numpy(np.stack(sizes)).to(device_type())

    def should_validate(self, step: int) -> bool:
        """Whether to validate at this step: before the first, after the last, and every `freq`."""
        return step in (0, self.config.last_step) or step % self.config.freq == 0

    @torch.no_grad()
    def validate(self, model_parts: list[nn.Module], step: int) -> None:
        """Validate on all rows and log the results; the same on any number of ranks."""
        for model in model_parts:
            model.eval()
        # For each source, sums over all labels of the negative log-likelihood, of 1 and of the
        # bytes of the label.
        sums = torch.zeros(len(self.loaders), 3, dtype=torch.float64, device=device_type())
        for source, loader in enumerate(self.loaders.values()):
            for batch in self._batches(loader, step):
                loss, labels = self._forward(batch, model_parts)
                if not self.parallel_dims.pp_enabled or self.pp_has_last_stage:
                    sums[source] += self._sums(loss, labels, self.token_bytes[source])
        for mesh in ("loss", "pp"):
            sums = dist_utils.dist_sum_tensor(sums, self.parallel_dims.get_optional_mesh(mesh))
        for model in model_parts:
            model.train()
            if isinstance(model, FSDPModule):
                # A forward pass without a backward leaves FSDP2 in the middle of a step (a chunked
                # loss runs the head by itself): a CUDA graph captured next would wait for events
                # from before the capture.
                model.reset_iter_state()
        self._report(sums.tolist(), step)
        self.warm = True

    def _report(self, sums: Sequence[Sequence[float]], step: int) -> None:
        """Log the figures of all rows and, for a mixture, those of each source, from their sums."""
        found = {"": _figures(*map(sum, zip(*sums, strict=True)))}
        if len(sums) > 1:
            found |= {name: _figures(*own) for name, own in zip(self.loaders, sums, strict=True)}
        loss = found[""]["loss"]
        if not math.isfinite(loss):
            raise Diverged(f"the validation loss is not finite at step {step}")
        extra = {
            f"{BY_SOURCE}{source}/{name}" if source else f"validation_metrics/{name}": value
            for source, figures in found.items()
            for name, value in figures.items()
            if source or name != "loss"
        }
        self.metrics_processor.log_validation(loss=loss, step=step, extra_metrics=extra)
        for source, figures in found.items():
            perplexity, bits = figures["perplexity"], figures["bits_per_byte"]
            of = f" {source}:" if source else ""
            logger.info(f"validate{of} perplexity {perplexity:.2f}, bits per byte {bits:.4f}")

    def _batches(self, loader: RowLoader, step: int) -> Iterator[Batch]:
        section = "validation" if self.warm else "first validation"
        begin(section, step)
        loader.consumed = 0
        for inputs, labels in loader:
            begin(section, step)
            self.agreement.check()
            self.metrics_processor.ntokens_since_last_log += labels.numel()
            on_device = {"device": device_type(), "non_blocking": True}  # from pinned memory
            inputs = {name: value.to(**on_device) for name, value in inputs.items()}
            yield inputs, labels.to(**on_device)

    def _forward(
        self, batch: Batch, model_parts: list[nn.Module]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The summed loss of this rank's part of the batch, and the labels of that part."""
        if self.parallel_dims.pp_enabled:
            return self._pipelined(batch, model_parts)
        inputs, labels, extra = self.post_dataloading_process(*batch, model_parts)
        with self.validation_context():
            loss, _ = self.loss_fn(model_parts[0](inputs, **extra), labels)
        return loss, labels

    @staticmethod
    def _sums(loss: torch.Tensor, labels: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        loss, labels = (x.to_local() if isinstance(x, DTensor) else x for x in (loss, labels))
        counted = labels != IGNORE_INDEX
        size = sizes[labels.clamp(min=0)] * counted
        return torch.stack([loss.double(), counted.sum().double(), size.sum()])

    def _pipelined(
        self, batch: Batch, model_parts: list[nn.Module]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, labels = batch
        size = self.parallelism.pipeline_parallel_microbatch_size
        arguments, extras, targets = [], [], []
        for n, target in enumerate(labels.split(size)):
            part = {name: value.split(size)[n] for name, value in inputs.items()}
            tokens, target, extra = self.post_dataloading_process(part, target, model_parts)
            arguments.append((tokens,))
            extras.append(extra)
            targets.append(target)
        losses: list[torch.Tensor] = []
        with self.validation_context():
            self.pp_schedule.eval(
                arg_mbs=arguments if self.pp_has_first_stage else None,
                kwarg_mbs=extras,
                target_mbs=targets if self.pp_has_last_stage else None,
                losses=losses if self.pp_has_last_stage else None,
            )
        loss = (
            torch.stack(losses).sum() if losses else torch.zeros(())
        )  # only the last stage has losses
        return loss.to(device_type()), torch.cat(targets)


def _figures(nats: float, tokens: float, size: float) -> dict[str, float]:
    loss = nats / tokens
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 700)),
        "bits_per_byte": nats / math.log(2) / size,
        "tokens": int(tokens),
    }
