"""Any stack as a folder that loads without torchtitan and without this project, with torch and
safetensors alone."""

import dataclasses
import inspect
import re
import shutil
from pathlib import Path
from typing import Any

from mixit_titan.errors import ConfigError
from mixit_titan.export import modeling_mixers, modeling_mixit
from mixit_titan.kernels import maps, mixing, named_normals, philox
from mixit_titan.model.hugging_face import hf_rope, hf_sizes
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.mixing_attention import PositionedEmbedding

_OWN_IMPORT = re.compile(r"^from mixit_titan\S* import .*\n", re.MULTILINE)


def mixit_config(model: MixitLlama.Config, end_of_text: int | None) -> dict[str, Any]:
    """The content of config.json, under Hugging Face's names where they exist, with the recipe as
    numbers."""
    shape, recipe, inner = model.shape, model.recipe, model.first_mixing
    if inner is not None and not inner.spec.causal:
        raise ConfigError("model.mixing.causal is false: only a causal model can be exported")
    mixers = [pair.mixer for pair in model.stack.fill(shape.layers)]
    for mixer in mixers:
        if mixer not in (*modeling_mixers.ATTENDING, *modeling_mixers.MATRICES):
            raise ConfigError(
                f"the {mixer} mixer cannot be exported: export/modeling_mixers.py does not have "
                "it. `mixit-titan generate` reads any mixer"
            )
    skip, branch = recipe.residual_scales(shape.layers)
    return {
        "model_type": "mixit",
        "architectures": ["MixitForCausalLM"],
        "auto_map": {
            "AutoConfig": "hf_mixit.MixitConfig",
            "AutoModelForCausalLM": "hf_mixit.MixitForCausalLM",
        },
        **hf_sizes(shape),
        "bos_token_id": None,
        "eos_token_id": end_of_text,
        "max_position_embeddings": shape.seq_len,
        "rope_parameters": hf_rope(shape),
        "bias": shape.bias,
        "mixers": mixers,
        "learned_positions": isinstance(model.tok_embeddings, PositionedEmbedding.Config),
        "window": shape.window,
        "skip": skip,
        "branch": branch,
        "gate_slope": recipe.gate_slope(shape.width),
        "linear_factor": recipe.linear_factor(shape.width),
        "down_factor": recipe.linear_factor(shape.hidden, down=True),
        "mixing": None if inner is None else dataclasses.asdict(inner.spec),
        "mixing_seed": model.mixing_seed,
    }


def write_code(folder: Path) -> None:
    """Write modeling_mixit.py, which is this project's generator, matrices and model in one file,
    and hf_mixit.py, which wraps it for transformers."""
    parts = ['"""Written by mixit-titan export, out of files of mixit_titan (BSD-3-Clause)."""\n']
    for module in (philox, named_normals, mixing, maps, modeling_mixers, modeling_mixit):
        name = module.__name__.replace(".", "/")
        parts.append(f"# {name}.py\n\n" + _OWN_IMPORT.sub("", inspect.getsource(module)))
    (folder / "modeling_mixit.py").write_text("\n\n".join(parts))
    shutil.copyfile(Path(__file__).with_name("hf_mixit.py"), folder / "hf_mixit.py")
