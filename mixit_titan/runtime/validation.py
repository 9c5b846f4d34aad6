"""torchtitan's validation, and one after the last step."""

from dataclasses import dataclass

from torchtitan.components.validate import Validator


class FinalValidator(Validator):
    @dataclass(kw_only=True, slots=True)
    class Config(Validator.Config):
        last_step: int = -1
        """Set from training.steps."""

    def should_validate(self, step: int) -> bool:
        return step == self.config.last_step or super().should_validate(step)
