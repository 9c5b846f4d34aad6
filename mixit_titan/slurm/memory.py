"""Checks whether a run fits into the GPUs that it is submitted to."""

from mixit_titan.config.estimate import estimate
from mixit_titan.config.plan import Plan
from mixit_titan.errors import ConfigError


def check_memory(plan: Plan, *, ranks: int, gpu: str) -> None:
    """Refuse a run whose modeled memory exceeds that of the GPUs."""
    found = estimate(plan, ranks=ranks, gpu=gpu)
    if not found.fits:
        raise ConfigError(
            f"{plan.where} does not fit on {ranks} x {found.gpu.name} (--gpu names others): "
            f"{found.advice()}. `mixit-titan params --config` shows the parts; --ignore-memory "
            "submits it anyway"
        )
