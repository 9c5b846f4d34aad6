"""A TOML file plus command-line overrides -> a plan: the sections of a run, filled and checked, and
the config of its model. Nothing is built, and no data are read."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import torch

from mixit_titan.config.checks import check_sections, set_batch
from mixit_titan.config.estimate import memory_left
from mixit_titan.config.groups import read_groups
from mixit_titan.config.mixtures import read_mixture
from mixit_titan.config.sections import HIDDEN, MixingSection, Sections, TopLevel, defaults
from mixit_titan.config.small import small_model
from mixit_titan.config.toml import fill, read_run
from mixit_titan.data.mixture import Source, Weights
from mixit_titan.data.shards import is_prepared, read_manifest
from mixit_titan.device import check_device, has_gpu, local_device
from mixit_titan.errors import ConfigError, Problems, unknown
from mixit_titan.model.accounting import mixing_layers
from mixit_titan.model.build import llama_config
from mixit_titan.model.hardware import GPUS, Gpu, available
from mixit_titan.model.initial_std import std_by_part
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.phases import Phase
from mixit_titan.model.recipes import Recipe, find_recipe
from mixit_titan.model.shapes import Shape, find_flavor
from mixit_titan.model.stack import Stack
from mixit_titan.model.storage import choose_form, room_for_matrices
from mixit_titan.model.variants import find_stack
from mixit_titan.runtime.optimizer import Group

_VOCAB_MULTIPLE = 64  # for which matrix products are fast

Table = dict[str, Any]


@dataclass(kw_only=True)
class Plan:
    """A run as its file and the command line describe it: filled and checked, except for its data
    and for what only building the run can reveal."""

    sections: Sections
    model: MixitLlama.Config
    groups: list[Group]
    phases: list[Phase]
    """The phases of [[optimizer.groups]]."""
    sources: list[Source] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)
    """The weights of [[data.sources]], if there are any."""
    dump_folder: str
    on_gpus: bool
    where: str
    """The file that an error message names."""


def plan_run(
    path: str,
    overrides: list[str],
    *,
    world_size: int,
    on_gpus: bool | None = None,
    gpu: Gpu | None = None,
    problems: Problems | None = None,
) -> Plan:
    """Read, merge and check a run without reading its data. Every mistake is a ConfigError.
    `on_gpus` and `gpu` describe the ranks where they do not run on this machine.

    If `problems` gathers, it collects every problem after which checking can continue: the plan is
    then that of a run with defaults in place of what is wrong.
    """
    where = f"{path} (and the command line)" if overrides else path
    table = read_run(path, overrides)
    ranks = {"world_size": world_size, "on_gpus": on_gpus, "gpu": gpu}
    return plan_table(table, name=Path(path).stem, where=where, problems=problems, **ranks)


def plan_table(
    table: Table,
    *,
    name: str,
    where: str,
    world_size: int,
    on_gpus: bool | None = None,
    gpu: Gpu | None = None,
    problems: Problems | None = None,
) -> Plan:
    """A plan from the content of a file of that name."""
    problems = problems or Problems()
    top = _top_level(table, where, problems)
    if on_gpus is None:
        if top.device != "cpu":
            check_device()
        on_gpus = has_gpu()
    with problems.noted():
        _check_device(top.device, table, where, on_gpus)
    sections = _sections(table, where, on_gpus, problems)
    with problems.noted():
        check_sections(sections, on_gpus=on_gpus)
    with problems.noted():
        set_batch(sections, world_size, given=table.get("training", {}))
    shape = _shape(find_flavor(sections.model.flavor), table.get("model", {}), where)
    if "vocab" not in table.get("model", {}):
        shape = dataclasses.replace(shape, vocab=vocabulary(sections.data.paths, shape.vocab))
    if "seq_len" not in table.get("training", {}):
        sections.training.seq_len = shape.seq_len
    named = sections.model
    stack = find_stack(
        shape.layers,
        stack=named.stack,
        variant=named.variant,
        mixer=named.mixer,
        freeze=named.freeze,
    )
    room = None
    if on_gpus and stack.mixes and not problems.found:
        room = _room(sections, shape, stack, world_size, gpu)
    model = _model(sections, shape, stack, table.get("model", {}), where, on_gpus, room)
    groups: list[Group] = []
    steps: list[Phase] = []
    with problems.noted():
        groups, steps = read_groups(sections, shape, stack)
    sources: list[Source] = []
    weights: list[Weights] = []
    with problems.noted():
        sources, weights = read_mixture(sections)
    return Plan(
        sections=sections,
        model=model,
        groups=groups,
        phases=steps,
        sources=sources,
        weights=weights,
        dump_folder=top.dump_folder or _dump_folder(name, model),
        on_gpus=on_gpus,
        where=where,
    )


def vocabulary(paths: Sequence[str], default: int) -> int:
    """The vocabulary that a model needs: that of the first prepared folder, rounded up; `default`
    for other data."""
    prepared = next((path for path in paths if is_prepared(path)), None)
    if prepared is None:
        return default
    tokens = read_manifest(prepared).tokenizer.vocab_size
    return tokens + -tokens % _VOCAB_MULTIPLE


def _top_level(table: Table, where: str, problems: Problems) -> TopLevel:
    """The keys above the first section. What is neither a key nor a section is removed from the
    table."""
    keys, names = _names(TopLevel), _names(Sections)
    for key, value in list(table.items()):
        with problems.noted():
            if key not in (*names, *keys):
                del table[key]
                raise unknown("key", key, [*names, *keys], where=where)
            if key in names and not isinstance(value, dict):
                del table[key]
                raise ConfigError(f"{key} in {where} is {value!r}: it must be a section of keys")
    given = {key: value for key, value in table.items() if key in keys}
    return fill(TopLevel, given, section="the top level", where=where, problems=problems)


def _check_device(device: str, table: Table, where: str, on_gpus: bool) -> None:
    if device == "gpu" and not on_gpus:
        raise ConfigError(
            f'{where} is for GPUs (device = "gpu") and there is none here: use '
            f"train_configs/debug_mixit.toml, or train a small model with these settings by "
            f"{small_model(table)}"
        )
    if device == "cpu" and on_gpus:  # `mixit-titan train` has hidden its GPUs
        raise ConfigError(
            f'{where} is for the CPU (device = "cpu") and its ranks have GPUs: set '
            "CUDA_VISIBLE_DEVICES= in the environment, or submit it with --gpus-per-node 0"
        )


def _sections(table: Table, where: str, on_gpus: bool, problems: Problems) -> Sections:
    """Every section: what the file says, else our defaults, else torchtitan's."""
    ours, classes, filled = defaults(table, on_gpus), get_type_hints(Sections), {}
    for name in _names(Sections):
        filled[name] = fill(
            classes[name],
            ours.get(name, {}) | table.get(name, {}),
            section=name,
            where=where,
            hidden=HIDDEN.get(name, ()),
            others=[*_names(Shape), "mixing"] if name == "model" else (),
            problems=problems,
        )
    return Sections(**filled)


def _model(
    sections: Sections,
    shape: Shape,
    stack: Stack,
    table: Table,
    where: str,
    on_gpus: bool,
    room: int | None,
) -> MixitLlama.Config:
    """The config of the model. Keys of `table`, which is [model], that are not ModelSection's
    belong to the shape or are `mixing`. `room` is the number of bytes that a rank has for its
    mixing matrices, where that is known."""
    model, data, training = sections.model, sections.data, sections.training
    mixing, recipe = _mixing(table.get("mixing"), stack, where)
    return llama_config(
        shape,
        stack,
        recipe,
        init_seed=sections.debug.seed,
        mixing_seed=mixing.seed,
        form=choose_form(
            mixing.storage,
            shape,
            training.mixed_precision_param,
            layers=mixing_layers(shape, stack),
            tensor_parallel=sections.parallelism.tensor_parallel_degree,
            stages=sections.parallelism.pipeline_parallel_degree,
            room=room,
        ),
        dtype=training.mixed_precision_param,
        # Rows of one document each need only the causal mask, which SDPA has for free.
        attention="sdpa"
        if (model.attention, data.packing) == ("auto", "documents")
        else model.attention,
        frozen_storage=sections.fsdp.frozen,
        on_gpu=on_gpus,
    )


def _room(sections: Sections, shape: Shape, stack: Stack, ranks: int, gpu: Gpu | None) -> int:
    """Bytes that a rank has for its mixing matrices: on that GPU, else on this machine's, else on
    an H100."""
    memory = GPUS["H100"].memory
    if gpu is not None:
        memory = gpu.memory
    elif has_gpu():
        memory = torch.cuda.get_device_properties(local_device()).total_memory
    left = memory_left(sections, shape, stack, ranks=ranks, available=available(memory))
    return room_for_matrices(left)


def _mixing(table: Any, stack: Stack, where: str) -> tuple[MixingSection, Recipe]:
    if not stack.mixes:
        if table is not None:
            raise ConfigError(
                f"[model.mixing] in {where} is only for the mixing mixer, and the variant is "
                f'{stack.name!r}: remove the section, or set model.variant = "mixit"'
            )
        return MixingSection(), Recipe()
    if not isinstance(table, dict | None):
        raise ConfigError(f"model.mixing in {where} is {table!r}: it must be a section of keys")
    table, name = table or {}, "model.mixing"
    section = fill(MixingSection, table, section=name, where=where, others=_names(Recipe))
    return section, _changed(find_recipe(section.recipe), table, name, where)


def _shape(flavor: Shape, table: Table, where: str) -> Shape:
    """The flavor's shape with the changes of [model]. A table of deviations by part changes only
    those that it names."""
    if isinstance(by_part := table.get("init_std"), dict):
        table = table | {"init_std": std_by_part(flavor.init_std) | by_part}
    return _changed(flavor, table, "model", where)


def _changed(base: Any, table: Table, section: str, where: str) -> Any:
    """A named shape or recipe, with the values of the file in place of its own."""
    own = {key: value for key, value in table.items() if key in _names(type(base))}
    return fill(type(base), dataclasses.asdict(base) | own, section=section, where=where)


def _dump_folder(name: str, model: MixitLlama.Config) -> str:
    """runs/FILE_VARIANT, so that the variants of one file get different folders; runs/debug_mixit
    names its variant only once."""
    variant = model.stack.folder
    return f"runs/{name}" if name.endswith(variant) else f"runs/{name}_{variant}"


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]
