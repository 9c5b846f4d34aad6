"""What `mixit-titan params --config` estimates for the config that is trained and measured."""

from mixit_titan.config.estimate import Estimate, estimate
from mixit_titan.config.plan import plan_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.gpu_check.runs import Settings, options
from mixit_titan.gpu_check.scale import CONFIG, Scale
from mixit_titan.model.hardware import find_gpu


def estimated(scale: Scale, settings: Settings, ranks: int) -> Estimate:
    """Return the estimate; `settings` are what a run changes in the config."""
    changed = options({**settings, "device": "gpu"})
    config = str(shipped_configs()[CONFIG])
    plan = plan_run(config, changed, world_size=ranks, on_gpus=True, gpu=find_gpu(scale.gpu))
    return estimate(plan, ranks=ranks, gpu=scale.gpu)
