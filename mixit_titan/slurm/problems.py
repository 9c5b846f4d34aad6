"""What is wrong with a submission: the first problem ends it, and a dry run gathers them all."""

from collections.abc import Iterator
from contextlib import contextmanager

from mixit_titan.config.estimate import estimate
from mixit_titan.config.run import Plan
from mixit_titan.errors import ConfigError


class Problems:
    def __init__(self, *, gathered: bool) -> None:
        self.gathered = gathered
        self.found: list[str] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """A ConfigError within is gathered, once, and what comes after it in the block is left
        out; or it is raised."""
        try:
            yield
        except ConfigError as error:
            if not self.gathered:
                raise
            if str(error) not in self.found:
                self.found.append(str(error))

    def text(self) -> str:
        count = "1 problem" if len(self.found) == 1 else f"{len(self.found)} problems"
        return "\n".join([f"{count}:", *(f"  - {problem}" for problem in self.found)])


def check_memory(plan: Plan, *, ranks: int, gpu: str) -> None:
    """Refuse a run whose modelled memory is more than those GPUs have."""
    found = estimate(plan, ranks=ranks, gpu=gpu)
    if not found.fits:
        raise ConfigError(
            f"{plan.where} does not fit on {ranks} x {found.gpu.name} (--gpu names others): "
            f"{found.advice()}. `mixit-titan params --config` shows the parts; --ignore-memory "
            "submits it as it is"
        )
