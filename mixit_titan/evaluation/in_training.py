"""[eval]: tasks of lm-eval during training.

The ranks share the batches, and all get the same results. The time is not counted as training, and
training does not depend on it.
"""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from mixit_titan.errors import ConfigError
from mixit_titan.evaluation.likelihood import Share
from mixit_titan.evaluation.tasks import evaluate_tasks, load_tasks
from mixit_titan.log import logger
from mixit_titan.runtime.metrics import EVAL
from mixit_titan.runtime.trainer import MixitTrainer
from mixit_titan.runtime.watch import begin


@dataclass(kw_only=True, slots=True)
class EvalConfig:
    """[eval]: evaluations before the first step, every `freq` steps, and after the last step."""

    tasks: list[str] = field(default_factory=list)
    """Names of lm-eval's tasks, or folders of its YAML files; empty: no evaluation."""
    freq: int = 1000
    """Steps between evaluations."""
    limit: int | None = None
    """Evaluate only the first N examples of each task."""

    def load(self) -> None:
        """Load the tasks and their data; refuse what cannot be evaluated during training."""
        for task in load_tasks(tuple(self.tasks)):
            for each in getattr(task, "get_all_tasks", lambda task=task: [task])():
                if each.OUTPUT_TYPE == "generate_until":
                    raise ConfigError(
                        f"eval.tasks: {each.task_name!r} generates text, which is not supported "
                        "during training: evaluate the checkpoints with mixit-titan eval"
                    )


class EvaluatingTrainer(MixitTrainer):
    """The trainer of a run with [eval] tasks."""

    @dataclass(kw_only=True, slots=True)
    class Config(MixitTrainer.Config):
        """The trainer's config, with [eval]."""

        eval: EvalConfig = field(default_factory=EvalConfig)

    def should_continue_training(self) -> bool:
        """Evaluate when due: torchtitan calls this before the first step and after each step."""
        config = self.config.eval
        due = self.step % config.freq == 0 or self.step == self.config.training.steps
        if config.tasks and due:
            self._evaluate(config)
        return super().should_continue_training()

    def _evaluate(self, config: EvalConfig) -> None:
        from mixit_titan.evaluation.harness import ScoringModel

        start = time.perf_counter()
        begin("evaluation", self.step)
        training, (model,) = self.config.training, self.model_parts
        scoring = ScoringModel(
            self.tokenizer,
            self._logits,
            vocab=self.config.model_spec.model.vocab_size,
            max_length=training.seq_len,
            share=Share(dist.get_rank(), dist.get_world_size(), group=self.agreement.group),
            length=training.seq_len if self.config.compile.enable else None,
        )
        model.eval()
        found = evaluate_tasks(
            scoring, load_tasks(tuple(config.tasks)), limit=config.limit, errors=False
        )
        model.train()
        if isinstance(model, FSDPModule):
            model.reset_iter_state()  # as after a validation, since no backward pass follows
        figures = {
            f"{task}/{metric}": value
            for task, result in found.items()
            for metric, value in result["metrics"].items()
        }
        metrics = self.metrics_processor
        metrics.logger.log({EVAL + name: value for name, value in figures.items()}, self.step)
        said = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
        logger.info(f"evaluate step: {self.step:2}  {said}")
        metrics.time_last_log += time.perf_counter() - start

    def _logits(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        begin("evaluation", self.step)
        self.agreement.check()
        (model,), seen = self.model_parts, self.ntokens_seen
        tokens_BL = tokens_BL.to(self.device)
        batch = {"input": tokens_BL}
        if getattr(self.config.dataloader, "positions", False):
            positions_L = torch.arange(tokens_BL.shape[1], device=self.device)
            batch["positions"] = positions_L.expand_as(tokens_BL).contiguous()
        inputs, _, extra = self.post_dataloading_process(batch, tokens_BL)
        self.ntokens_seen = seen  # counts training tokens only
        without_head, model._skip_lm_head = model._skip_lm_head, False  # for a chunked loss
        try:
            with self.train_context():
                return model(inputs, **extra)
        finally:
            model._skip_lm_head = without_head
