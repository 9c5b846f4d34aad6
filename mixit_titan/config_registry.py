"""The runs that torchtitan finds with `--module mixit_titan --config NAME`.

NAME is the name of a file in train_configs/. A file that is not for one variant alone is also
registered once per variant, with the variant in front: `mixit_160m_fineweb_edu`,
`standard_160m_fineweb_edu`.
"""

import functools as _functools
import sys as _sys

from torchtitan.trainer import Trainer

from mixit_titan.config.run import load_run as _load_run
from mixit_titan.config.shipped import shipped_configs as _shipped_configs
from mixit_titan.errors import ConfigError
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.launch import ranks_from_environment as _ranks_from_environment


def _run(path: str, overrides: list[str]) -> Trainer.Config:
    try:
        return _load_run(path, overrides, world_size=_ranks_from_environment() or 1)
    except ConfigError as error:
        print(f"mixit_titan: {error}", file=_sys.stderr)
        _sys.exit(2)


for _name, _file in _shipped_configs().items():
    globals()[_name] = _functools.partial(_run, str(_file), [])
    if not _name.startswith("debug_"):
        for _variant in VARIANTS:
            _override = ["--model.variant", _variant]
            globals()[f"{_variant}_{_name}"] = _functools.partial(_run, str(_file), _override)
