"""The runs that torchtitan finds with `--module mixit_titan --config NAME`.

NAME is the name of a file of train_configs/. A file for several variants can be had for each of
them, with the variant in front: `mixit_160m_fineweb_edu`, `standard_160m_fineweb_edu`.
"""

import functools
import sys

from torchtitan.trainer import Trainer

from mixit_titan.errors import ConfigError
from mixit_titan.model.variants import VARIANTS
from mixit_titan.run_config import load_run
from mixit_titan.runtime.device import prepared_in_time
from mixit_titan.runtime.launch import ranks_from_environment
from mixit_titan.shipped import shipped_configs


def _run(path: str, overrides: list[str]) -> Trainer.Config:
    try:
        if not prepared_in_time():
            raise ConfigError(
                "torchtitan's own entry point needs a GPU and this machine has none: "
                f"use `mixit-titan train {path}`"
            )
        return load_run(path, overrides, world_size=ranks_from_environment() or 1)
    except ConfigError as error:
        print(f"mixit_titan: {error}", file=sys.stderr)
        sys.exit(2)


for _name, _file in shipped_configs().items():
    globals()[_name] = functools.partial(_run, str(_file), [])
    if not _name.startswith("debug_"):
        for _variant in VARIANTS:
            _override = ["--model.variant", _variant]
            globals()[f"{_variant}_{_name}"] = functools.partial(_run, str(_file), _override)
