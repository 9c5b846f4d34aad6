"""A TOML file plus command-line overrides -> a torchtitan Trainer.Config, and the ranks that train
by it."""

import dataclasses
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torchtitan.components.loss import BaseLoss, ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.trainer import Trainer

from mixit_titan.config.checks import (
    check_data,
    check_folder,
    check_hugging_face,
    check_loss,
    check_memory,
    check_sections,
    set_batch,
)
from mixit_titan.config.estimate import memory_left
from mixit_titan.config.sections import (
    HIDDEN,
    LossSection,
    MixingSection,
    Sections,
    TopLevel,
    defaults,
)
from mixit_titan.config.toml import fill, read_run
from mixit_titan.data.loader import RowLoader
from mixit_titan.data.prepared import prepared_data
from mixit_titan.data.tokenizers import tokenizer_config
from mixit_titan.device import check_device, has_gpu, local_device
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.jobs.lock import locked
from mixit_titan.model.build import llama_config, model_spec
from mixit_titan.model.hardware import GPUS, Gpu, available
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.parallelize import recomputation
from mixit_titan.model.quantize import check_float8, quantize
from mixit_titan.model.recipes import Recipe, find_recipe
from mixit_titan.model.shapes import Shape, find_flavor
from mixit_titan.model.storage import choose_form, room_for_matrices
from mixit_titan.model.variants import Variant, find_variant
from mixit_titan.runtime.checkpoint import latest_step
from mixit_titan.runtime.launch import launch, local_ranks, ranks_from_environment
from mixit_titan.runtime.optimizer import MUON, check_muon, optimizer_config
from mixit_titan.runtime.run_state import read_state
from mixit_titan.runtime.stop import was_interrupted
from mixit_titan.runtime.train import train
from mixit_titan.runtime.trainer import MixitTrainer

Table = dict[str, Any]


@dataclass(kw_only=True)
class Plan:
    """A run as its file and the command line describe it: filled and checked, but for its data."""

    sections: Sections
    model: MixitLlama.Config
    dump_folder: str
    where: str
    """What a mistake is said to be in."""


def plan_run(
    path: str,
    overrides: list[str],
    *,
    world_size: int,
    on_gpus: bool | None = None,
    gpu: Gpu | None = None,
) -> Plan:
    """Read, merge and check a run without looking at its data. Every mistake is a ConfigError.
    `on_gpus`, and which `gpu`: what the ranks will have, where they do not run on this machine."""
    where = f"{path} (and the command line)" if overrides else path
    table = read_run(path, overrides)
    ranks = {"world_size": world_size, "on_gpus": on_gpus, "gpu": gpu}
    return plan_table(table, name=Path(path).stem, where=where, **ranks)


def plan_table(
    table: Table,
    *,
    name: str,
    where: str,
    world_size: int,
    on_gpus: bool | None = None,
    gpu: Gpu | None = None,
) -> Plan:
    """A plan from what a file of that name would hold."""
    top = _top_level(table, where)
    if on_gpus is None:
        if top.device != "cpu":
            check_device()
        on_gpus = has_gpu()
    _check_device(top.device, where, on_gpus)
    sections = _sections(table, where, on_gpus)
    check_sections(sections, on_gpus=on_gpus)
    set_batch(sections, world_size, given=table.get("training", {}))
    shape = _changed(find_flavor(sections.model.flavor), table.get("model", {}), "model", where)
    if "seq_len" not in table.get("training", {}):
        sections.training.seq_len = shape.seq_len
    named = sections.model
    variant = find_variant(named.variant, named.mixer, named.freeze)
    room = None
    if on_gpus and variant.mixer == "mixing":
        room = _room(sections, shape, variant, world_size, gpu)
    model = _model(sections, shape, variant, table.get("model", {}), where, on_gpus, room)
    folder = top.dump_folder or _dump_folder(name, model)
    return Plan(sections=sections, model=model, dump_folder=folder, where=where)


def load_run(
    path: str, overrides: list[str], *, world_size: int, on_gpus: bool | None = None
) -> Trainer.Config:
    """A plan with its data, checked before any process group exists."""
    return with_data(plan_run(path, overrides, world_size=world_size, on_gpus=on_gpus))


def with_data(plan: Plan) -> Trainer.Config:
    """What builds the Trainer of a plan, whose data are there and fit."""
    try:
        run = _trainer_config(plan)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{plan.where}: {error}") from error
    check_loss(run)
    check_data(run)
    check_hugging_face(run)
    return run


def run_train(path: str, overrides: list[str], nproc: int | None = None) -> None:
    """Train: as one rank where torchrun or srun started it, else by starting `nproc` ranks here
    (default: one per GPU, else 1)."""
    world_size = ranks_from_environment()
    ranks = world_size or local_ranks(nproc)
    run = load_run(path, overrides, world_size=ranks)
    check_memory(run, ranks)
    check_folder(run)
    if world_size is not None:
        train(run)  # whoever has started the ranks says how to resume
        return
    if latest_step(run) == run.training.steps:
        print(f"The run in {run.dump_folder} is finished: raise --training.steps to continue")
        return
    with locked(Path(run.dump_folder), "--dump_folder"):
        pass  # the first rank holds it: here it is only that it can, before all are started
    code = launch(ranks, ["train", path, *overrides], lambda: train(run))
    state = read_state(Path(run.dump_folder))
    if state is not None and state.word == "stopped" and code == 0:
        own = [] if nproc is None else ["--nproc", str(nproc)]
        command = shlex.join(["mixit-titan", "train", path, *own, *overrides])
        print(f"Stopped after step {state.step}: {state.said}. Resume it with", file=sys.stderr)
        print(f"  {command}", file=sys.stderr)
        code = 128 + (signal.SIGINT if was_interrupted() else signal.SIGTERM)
    if code:
        sys.exit(code)


def _top_level(table: Table, where: str) -> TopLevel:
    keys, names = _names(TopLevel), _names(Sections)
    for key in table:
        if key not in (*names, *keys):
            raise unknown("key", key, [*names, *keys], where=where)
        if key in names and not isinstance(table[key], dict):
            raise ConfigError(f"{key} in {where} is {table[key]!r}: it must be a section of keys")
    given = {key: value for key, value in table.items() if key in keys}
    return fill(TopLevel, given, section="the top level", where=where)


def _check_device(device: str, where: str, on_gpus: bool) -> None:
    if device == "gpu" and not on_gpus:
        raise ConfigError(
            f'{where} is for GPUs (device = "gpu") and there is none here: '
            "take one of train_configs/debug_*.toml, or set --device auto"
        )
    if device == "cpu" and on_gpus:  # `mixit-titan train` has hidden them
        raise ConfigError(
            f'{where} is for the CPU (device = "cpu") and its ranks have GPUs: set '
            "CUDA_VISIBLE_DEVICES= in the environment, or submit it with --gpus-per-node 0"
        )


def _sections(table: Table, where: str, on_gpus: bool) -> Sections:
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
        )
    return Sections(**filled)


def _model(
    sections: Sections,
    shape: Shape,
    variant: Variant,
    table: Table,
    where: str,
    on_gpus: bool,
    room: int | None,
) -> MixitLlama.Config:
    """`table` is [model]: its keys that are not ModelSection's are the shape's, and `mixing`.
    `room`: bytes of a rank for the mixing matrices, where that is known."""
    model, data, training = sections.model, sections.data, sections.training
    mixing, recipe = _mixing(table.get("mixing"), variant, where)
    config = llama_config(
        shape,
        variant,
        recipe,
        init_seed=sections.debug.seed,
        mixing_seed=mixing.seed,
        form=choose_form(
            mixing.storage,
            shape,
            training.mixed_precision_param,
            tensor_parallel=sections.parallelism.tensor_parallel_degree,
            stages=sections.parallelism.pipeline_parallel_degree,
            room=room,
        ),
        dtype=training.mixed_precision_param,
        # Rows of one document each need no mask but the causal one, which SDPA has for free.
        attention="sdpa"
        if (model.attention, data.packing) == ("auto", "documents")
        else model.attention,
        frozen_storage=sections.fsdp.frozen,
        on_gpu=on_gpus,
    )
    float8 = sections.quantize
    if float8.recipe == "none":
        return config
    compiled = sections.compile.enable and "model" in sections.compile.components
    check_float8(float8.recipe, emulate=float8.emulate, compiled=compiled, on_gpu=on_gpus)
    return quantize(config, float8.recipe, emulate=float8.emulate, compiled=compiled)


def _room(sections: Sections, shape: Shape, variant: Variant, ranks: int, gpu: Gpu | None) -> int:
    """Bytes for the mixing matrices of a rank: of that GPU, else of this machine's, else of an
    H100."""
    memory = GPUS["H100"].memory
    if gpu is not None:
        memory = gpu.memory
    elif has_gpu():
        memory = torch.cuda.get_device_properties(local_device()).total_memory
    left = memory_left(sections, shape, variant, ranks=ranks, available=available(memory))
    return room_for_matrices(left)


def _mixing(table: Any, variant: Variant, where: str) -> tuple[MixingSection, Recipe]:
    if variant.mixer != "mixing":
        if table is not None:
            raise ConfigError(
                f"[model.mixing] in {where} is only for the mixing mixer, and the variant is "
                f'{variant.name!r}: remove the section, or set model.variant = "mixit"'
            )
        return MixingSection(), Recipe()
    if not isinstance(table, dict | None):
        raise ConfigError(f"model.mixing in {where} is {table!r}: it must be a section of keys")
    table, name = table or {}, "model.mixing"
    section = fill(MixingSection, table, section=name, where=where, others=_names(Recipe))
    return section, _changed(find_recipe(section.recipe), table, name, where)


def _changed(base: Any, table: Table, section: str, where: str) -> Any:
    """A named shape or recipe, with what the file says in place of its values."""
    own = {key: value for key, value in table.items() if key in _names(type(base))}
    return fill(type(base), dataclasses.asdict(base) | own, section=section, where=where)


def _trainer_config(plan: Plan) -> Trainer.Config:
    sections, model = plan.sections, plan.model
    data, validator, metrics = sections.data, sections.validator, sections.metrics
    if sections.optimizer.name == MUON:
        check_muon(model, sections.parallelism.pipeline_parallel_degree)
    folder, tokenizer = prepared_data(data.path, data.tokenizer, vocab=model.shape.vocab)
    loader = RowLoader.Config(
        dataset_path=folder,
        packing=data.packing,
        seed=data.seed,
        workers=data.workers,
        positions=data.packing == "stream" or _needs_positions(model),
    )
    # The same rows for any seed, and no processes to be started for each validation.
    validator.dataloader = dataclasses.replace(loader, split="validation", seed=0, workers=0)
    validator.last_step = metrics.last_step = sections.training.steps
    return MixitTrainer.Config(
        model_spec=model_spec(sections.model.flavor, model),
        dump_folder=plan.dump_folder,
        hf_assets_path=tokenizer,
        tokenizer=tokenizer_config(tokenizer),
        dataloader=loader,
        validator=validator,
        training=sections.training,
        optimizer=optimizer_config(**dataclasses.asdict(sections.optimizer)),
        loss=_loss(sections.loss, model),
        activation_checkpoint=recomputation(sections.activation_checkpoint.mode),
        checkpoint=sections.checkpoint,
        lr_scheduler=sections.lr_scheduler,
        parallelism=sections.parallelism,
        compile=sections.compile,
        comm=sections.comm,
        metrics=metrics,
        profiler=sections.profiler,
        debug=sections.debug,
        watch=sections.watch,
    )


def _dump_folder(name: str, model: MixitLlama.Config) -> str:
    """runs/FILE_VARIANT, so that the variants of one file do not meet; debug_mixit says it once."""
    variant = model.variant.name
    return f"runs/{name}" if name.endswith(variant) else f"runs/{name}_{variant}"


def _needs_positions(model: MixitLlama.Config) -> bool:
    """Flex and varlen attention build their masks from positions."""
    inner = model.layers[0].attention.inner_attention
    plain = isinstance(inner, ScaledDotProductAttention.Config)
    return model.variant.mixer == "attention" and not plain


def _loss(section: LossSection, model: MixitLlama.Config) -> BaseLoss.Config:
    loss = CrossEntropyLoss.Config(global_vocab_size=model.shape.vocab)
    if section.num_chunks == 1:
        return loss
    return ChunkedLossWrapper.Config(num_chunks=section.num_chunks, loss_fn=loss)


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]
