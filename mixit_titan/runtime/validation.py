"""torchtitan's validation, and one after the last step."""

from dataclasses import dataclass
from typing import Any

from torchtitan.components.validate import Validator

from mixit_titan.runtime.stop import Agreement


class FinalValidator(Validator):
    @dataclass(kw_only=True, slots=True)
    class Config(Validator.Config):
        last_step: int = -1
        """Set from training.steps."""

    agreement: Agreement
    """Set by the trainer: a stop does not wait for the end of a validation."""

    def should_validate(self, step: int) -> bool:
        return step == self.config.last_step or super().should_validate(step)

    def post_dataloading_process(self, *args: Any, **kwargs: Any) -> Any:
        self.agreement.check()
        return super().post_dataloading_process(*args, **kwargs)
