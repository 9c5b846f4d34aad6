"""torchtitan's Trainer, plus what it lacks around the training steps: it stops when asked to,
reports where it is, and counts the tokens of all ranks."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torchtitan.distributed.cudagraph import cudagraph_teardown, wrap_with_cuda_graph
from torchtitan.tools import utils
from torchtitan.trainer import Trainer

from mixit_titan.data.batches import Batch
from mixit_titan.data.loader import RowLoader
from mixit_titan.data.tokenizers import keep_tokenizer
from mixit_titan.device import has_gpu
from mixit_titan.errors import ConfigError, RunFailed, disk_is_full
from mixit_titan.files import make_folder
from mixit_titan.jobs.lock import FolderLock
from mixit_titan.log import logger
from mixit_titan.model.accounting import count
from mixit_titan.model.limits import check_limits
from mixit_titan.runtime.bad_steps import BadStep, BadSteps, Training
from mixit_titan.runtime.checkpoint import said_by_first_rank
from mixit_titan.runtime.copies import start_copies
from mixit_titan.runtime.divergence import Diverged, explain
from mixit_titan.runtime.goodput import goodput
from mixit_titan.runtime.ledger import end_ledger, open_ledger
from mixit_titan.runtime.optimizer import Optimizers
from mixit_titan.runtime.run_state import StateFile, Word
from mixit_titan.runtime.stop import Agreement, StopAgreed, expect_to_save, listen
from mixit_titan.runtime.watch import WatchConfig, begin, start_watch


class MixitTrainer(Trainer):
    """torchtitan's Trainer with orderly stops, bad steps, phases and a lock on its folder."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        """The config of a run, as torchtitan builds it."""

        optimizer: Optimizers.Config = field(default_factory=Optimizers.Config)
        training: Training = field(default_factory=Training)
        watch: WatchConfig = field(default_factory=WatchConfig)

        def __post_init__(self) -> None:
            Trainer.Config.__post_init__(self)
            if self.model_spec is not None:
                phases = [phase.stack for phase in self.optimizer.phases]
                check_limits(self.model_spec.model, self.training, self.parallelism, phases)

    def __init__(self, config: Config) -> None:
        listen()
        self.lock = None
        if os.environ["RANK"] == "0":
            make_folder(Path(config.dump_folder), "--dump_folder")
            self.lock = FolderLock(Path(config.dump_folder), "--dump_folder")
        try:
            super().__init__(config)
        except BaseException:
            self._release()
            raise
        if isinstance(self.dataloader, RowLoader):
            tokens, vocab = self.dataloader.vocab, config.model_spec.model.vocab_size
            logger.info(f"model.vocab = {vocab}, for data with {tokens:,} different tokens")
            if config.dataloader.sources:
                self.metrics_processor.sources = self.dataloader.given
        self.agreement = Agreement()
        self.bad_steps = BadSteps(
            config.training, self.agreement, self.device, self._counting_ranks
        )
        if config.validator.enable:
            self.validator.agreement = self.agreement
        self.state_file = None
        if dist.get_rank() == 0:
            self.state_file = StateFile(config.dump_folder)
            # So that a run's folder can be moved and its model still used.
            keep_tokenizer(config.hf_assets_path, Path(config.dump_folder))
        self.steps_here = 0  # done by this process
        self.warm_since = 0  # of these, when what is trained last changed
        self.tokens_before = self.own_tokens_before = 0  # of earlier starts of the run
        # Reused: asynchronous saves keep a pinned copy for each tensor that they have seen.
        self._rng = torch.get_rng_state()
        self._gpu_rng = torch.zeros(16, dtype=torch.uint8)

    def close(self) -> None:
        """Release torchtitan's resources and the lock on the folder."""
        super().close()
        self._release()

    def _release(self) -> None:
        if self.lock is not None:
            self.lock.release()

    def train(self) -> None:
        """Train to the end or until asked to stop. A failure that a restart would not fix is
        recorded in the run's state."""
        start_watch(
            self.config.watch, self.config.dump_folder
        )  # under torchtitan's own entry point
        if self.lock is not None:
            open_ledger(Path(self.config.dump_folder))
        try:
            self._train_or_stop()
        except (Exception, CheckpointException) as error:
            failure = self._explain(error)
            if failure is None:
                raise
            # Also if it is another rank that failed.
            StateFile(self.config.dump_folder).write("failed", self.step, str(failure))
            self.checkpointer.discard_unfinished()
            raise failure from error

    def _train_or_stop(self) -> None:
        try:
            super().train()
        except StopAgreed:
            self.checkpointer.save_now(self.step)
            said = self._what_is_saved()
            logger.info(f"Stop requested: exiting after step {self.step}, {said}")
            self._say("stopped", said)
        else:
            self._say("finished", self._what_is_skipped())
        end_ledger()
        if self.lock is not None and (known := goodput(Path(self.config.dump_folder))) is not None:
            logger.info(f"Goodput: {known}")

    def _what_is_saved(self) -> str:
        checkpoint = self.config.checkpoint
        if self.step == 0:
            return "there was nothing to save yet"
        saves = checkpoint.enable and not checkpoint.load_only
        return "saved" if saves else "not saved, because checkpoints are off"

    def _explain(self, error: BaseException) -> ConfigError | RunFailed | None:
        """The error for a failure that a restart would not fix; None for others."""
        if isinstance(error, Diverged):
            return said_by_first_rank(partial(self._diverged, str(error)))
        if isinstance(error, ConfigError | RunFailed):
            return error
        if not disk_is_full(error):
            return None
        return RunFailed(
            f"the disk of {self.config.dump_folder} is full at step {self.step}: earlier "
            "checkpoints are complete. Make room, and start the run again"
        )

    def _diverged(self, what: str) -> Diverged:
        config, folder = self.config, Path(self.config.dump_folder)
        saved = folder / config.checkpoint.folder if config.checkpoint.enable else None
        rate = config.optimizer.param_groups[-1].optimizer_kwargs["lr"]
        losses = self.bad_steps.curve.losses(folder)
        return explain(what, losses, run=folder, checkpoints=saved, rate=rate)

    def batch_generator(self, data_iterable: Iterable[Batch]) -> Iterator[Batch]:
        """torchtitan calls this once, after loading a checkpoint and before the first step: the
        moment to validate a model that has not been trained, or that was saved before it was
        validated."""
        self._take_the_rate_of_the_config()
        if self.config.validator.enable and self.validator.should_validate(self.step):
            self.validator.validate(self.model_parts, self.step)
        batches = super().batch_generator(data_iterable)
        return start_copies(batches, self.device) if has_gpu() else batches

    def _take_the_rate_of_the_config(self) -> None:
        """Set the learning rates of the config: a loaded optimizer would keep those of its
        checkpoint for one more step, even if the run resumes with a lower one."""
        for scheduler in self.lr_schedulers:
            rates = zip(scheduler.optimizer.param_groups, scheduler.get_last_lr(), strict=True)
            for group, rate in rates:
                group["lr"] = rate

    def should_continue_training(self) -> bool:
        """torchtitan asks once after loading, and after every step."""
        expect_to_save()
        continues = super().should_continue_training()
        self._say("running", self._what_is_skipped())
        if continues:
            self._begin_step(self.step + 1)
            self.bad_steps.check()
        else:
            self.bad_steps.check_rest()
            begin("end", self.step)
        return continues

    def _begin_step(self, step: int) -> None:
        """Tell the watcher. "First" steps last until everything is compiled and captured and the
        watcher has seen how long a step takes. Steps that the host queues ahead of a GPU are quick
        and teach it nothing."""
        first = 2 * self.config.metrics.log_freq + 3 if has_gpu() else 3
        begin("step" if self.steps_here - self.warm_since > first else "first step", step)

    def train_step(self, data_iterator: Any) -> None:
        """Train on the next batch that is not to be skipped."""
        self.steps_here += 1
        self._begin_phase()
        tokens, has_loss = self.ntokens_seen, not self.parallel_dims.pp_enabled
        while True:
            try:
                with self.bad_steps.looking(self.step, has_loss=has_loss or self.pp_has_last_stage):
                    super().train_step(data_iterator)
                return
            except BadStep:
                self.ntokens_seen = tokens
                self.metrics_processor.skipped_batches = self.bad_steps.skipped
                self._begin_step(self.step)
            except RuntimeError as error:
                if "Loss is not finite" not in str(error):
                    raise
                if self.parallel_dims.pp_enabled:
                    return  # only the last stage knows it here; `bad_steps.check` tells all ranks
                raise Diverged(f"the loss is not finite at step {self.step}") from error

    def _begin_phase(self) -> None:
        """Set what this step trains. If that changes, everything compiled and captured for earlier
        steps is rebuilt."""
        changed = self.optimizers.begin(self.step) is not None
        phase = self.optimizers.phase
        if phase is None or not (changed or self.steps_here == 1):
            return
        model, seq_len = self.model_config, self.config.training.seq_len
        counts = count(model.shape, phase.stack, seq_len=seq_len)
        self.metrics_processor.num_flops_per_token = counts.flops_per_token
        self.metrics_processor.trained_params = counts.trainable
        here = phase.change and self.step == phase.after + 1
        logger.info(
            f"From step {self.step} on, {counts.trainable:,} parameters are trained and "
            f"{counts.frozen:,} frozen{f': this step {phase.change}' if here else ''}"
        )
        self.warm_since = self.steps_here
        begin("first step", self.step)
        if changed and self.config.compile.enable:
            torch.compiler.reset()  # a compiled function allows only a few sets of weights
        if changed and not self.config.training.disable_cuda_graphs:
            self._capture_again()

    def _capture_again(self) -> None:
        """Drop the captured graph, which would compute the gradients that it was captured with."""
        utils.device_module.synchronize()
        cudagraph_teardown()
        self.optimizers.zero_grad(set_to_none=True)
        self.fwd_bwd_fn = wrap_with_cuda_graph(self._forward_backward_body)

    def forward_backward_step(self, **microbatch: Any) -> torch.Tensor:
        """torchtitan's, with the loss of the microbatch passed to the check for bad steps."""
        loss = super().forward_backward_step(**microbatch)
        self.bad_steps.add_loss(loss)
        return loss

    def _what_is_skipped(self) -> str:
        skipped = self.bad_steps.skipped
        return f"{skipped} batch{'es' * (skipped > 1)} skipped" if skipped else ""

    def _say(self, word: Word, said: str = "") -> None:
        if self.state_file is not None:
            self.state_file.write(word, self.step, said)

    @property
    def _counting_ranks(self) -> int:
        """The number of ranks whose tokens torchtitan adds up; each of them sees equally many."""
        mesh = self.parallel_dims.get_optional_mesh("loss")
        return mesh.size() if mesh is not None else 1

    def state_dict(self) -> dict[str, Any]:
        """The trainer's state for any number of ranks: torchtitan saves the tokens of one rank and
        no state of the random generators."""
        new = self._counting_ranks * (self.ntokens_seen - self.own_tokens_before)
        self._rng.copy_(torch.get_rng_state())
        if has_gpu():
            self._gpu_rng.copy_(utils.device_module.get_rng_state())
        return super().state_dict() | {
            "ntokens_seen": self.tokens_before + new,
            "rng": self._rng,
            "gpu_rng": self._gpu_rng,
            "bad_steps": self.bad_steps.state,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state, dividing the tokens among the ranks of this run."""
        super().load_state_dict(state_dict)
        self.bad_steps.state.copy_(state_dict["bad_steps"])
        self.metrics_processor.skipped_batches = self.bad_steps.skipped
        self.tokens_before = self.ntokens_seen
        mesh = self.parallel_dims.get_optional_mesh("loss")
        share, rest = divmod(self.tokens_before, self._counting_ranks)
        first = mesh is None or mesh.get_local_rank() == 0
        self.own_tokens_before = self.ntokens_seen = share + (rest if first else 0)
        torch.set_rng_state(state_dict["rng"])
        if has_gpu() and state_dict["gpu_rng"].any():  # zeros: written without a GPU
            utils.device_module.set_rng_state(state_dict["gpu_rng"])
