"""torchtitan's Trainer, with what it lacks around the training steps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torchtitan.trainer import Trainer

from mixit_titan.data.loader import Batch


class MixitTrainer(Trainer):
    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tokens_before = self.own_tokens_before = 0  # of the run that this one continues

    def batch_generator(self, data_iterable: Iterable[Batch]) -> Iterator[Batch]:
        """torchtitan calls this once, after it has loaded a checkpoint and before the first step:
        the moment to validate a model that has not been trained."""
        if self.step == 0 and self.config.validator.enable:
            self.validator.validate(self.model_parts, self.step)
        return super().batch_generator(data_iterable)

    @property
    def _counting_ranks(self) -> int:
        """The ranks whose tokens torchtitan adds up, all of which see equally many."""
        mesh = self.parallel_dims.get_optional_mesh("loss")
        return mesh.size() if mesh is not None else 1

    def state_dict(self) -> dict[str, Any]:
        """torchtitan saves the tokens of one rank; we those of all, for any number of ranks."""
        new = self._counting_ranks * (self.ntokens_seen - self.own_tokens_before)
        return super().state_dict() | {"ntokens_seen": self.tokens_before + new}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.tokens_before = self.ntokens_seen
        mesh = self.parallel_dims.get_optional_mesh("loss")
        share, rest = divmod(self.tokens_before, self._counting_ranks)
        first = mesh is None or mesh.get_local_rank() == 0
        self.own_tokens_before = self.ntokens_seen = share + (rest if first else 0)
