"""A plan and its data -> a torchtitan Trainer.Config, and the ranks that train with it."""

import contextlib
import dataclasses
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from torchtitan.components.loss import BaseLoss, ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.trainer import Trainer

from mixit_titan.config.checks import (
    check_data,
    check_eval,
    check_folder,
    check_hugging_face,
    check_loss,
    check_memory,
)
from mixit_titan.config.ending import print_ending
from mixit_titan.config.plan import Plan, plan_run
from mixit_titan.config.sections import DataSection, LossSection
from mixit_titan.config.toml import fill, read_run
from mixit_titan.data.loader import RowLoader
from mixit_titan.data.prepared import prepared_data
from mixit_titan.data.synthetic import SYNTHETIC
from mixit_titan.data.tokenizers import tokenizer_config
from mixit_titan.errors import ConfigError, Problems, RunFailed
from mixit_titan.evaluation.in_training import EvaluatingTrainer
from mixit_titan.jobs.lock import locked
from mixit_titan.model.build import model_spec
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.parallelize import recomputation
from mixit_titan.model.quantize import check_float8, quantize
from mixit_titan.runtime.checkpoint import latest_step
from mixit_titan.runtime.divergence import Diverged
from mixit_titan.runtime.launch import launch, local_ranks, ranks_from_environment
from mixit_titan.runtime.optimizer import MUON, check_muon, optimizer_config
from mixit_titan.runtime.run_state import read_state
from mixit_titan.runtime.stop import was_interrupted
from mixit_titan.runtime.train import train

_LOADED = ("--checkpoint.initial_load_path", "--checkpoint.initial_load_model_only")


def load_run(
    path: str, overrides: list[str], *, world_size: int, on_gpus: bool | None = None
) -> Trainer.Config:
    """The Trainer.Config of a file and its overrides, with its data, checked before any process
    group exists."""
    return with_data(plan_run(path, overrides, world_size=world_size, on_gpus=on_gpus))


def with_data(plan: Plan, problems: Problems | None = None) -> Trainer.Config:
    """The config that builds the Trainer of a plan; its data must exist and fit. Problems that do
    not concern the data go to `problems`, if it gathers."""
    problems, model = problems or Problems(), plan.model
    sections = plan.sections
    with problems.noted():
        model = _in_float8(plan)
    with problems.noted():
        check_loss(sections, model, [phase.stack for phase in plan.phases])
    with problems.noted():
        check_eval(sections)
    with problems.noted():
        check_hugging_face(sections.checkpoint, model)
    with problems.noted():
        if sections.optimizer.name == MUON:
            check_muon(model, sections.parallelism.pipeline_parallel_degree)
    try:
        run = _trainer_config(plan, model)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{plan.where}: {error}") from error
    check_data(run)
    return run


def find_data(path: str, overrides: list[str]) -> None:
    """Refuse data that are missing or incomplete: for a run of which no plan could be made."""
    table = read_run(path, overrides).get("data", {})
    data = fill(DataSection, table, section="data", where=path)
    for source in data.paths:
        if source != SYNTHETIC:
            _prepared(source, data, vocab=0)


def _prepared(path: str, data: DataSection, *, vocab: int) -> tuple[str, str]:
    try:
        return prepared_data(path, data.tokenizer, vocab=vocab)
    except ConfigError as error:
        if not data.sources:
            raise
        raise ConfigError(f"[[data.sources]]: {error}") from error


def _in_float8(plan: Plan) -> MixitLlama.Config:
    """The model, with its linears in float8 where the run asks for it."""
    float8, compiled = plan.sections.quantize, plan.sections.compile
    if float8.recipe == "none":
        return plan.model
    settings = {
        "emulate": float8.emulate,
        "compiled": compiled.enable and "model" in compiled.components,
    }
    check_float8(float8.recipe, on_gpu=plan.on_gpus, **settings)
    return quantize(plan.model, float8.recipe, **settings)


def run_train(path: str, overrides: list[str], nproc: int | None = None) -> None:
    """Train: as one rank if torchrun or srun started this process, else by starting `nproc` ranks
    here (default: one per GPU, else 1). At the end, print what came out and what to type next."""
    world_size = ranks_from_environment()
    ranks = world_size or local_ranks(nproc)
    run = load_run(path, overrides, world_size=ranks)
    check_memory(run, ranks)
    check_folder(run)
    if world_size is not None:
        with _command_said([path, *overrides], _same_ranks(world_size)):
            train(run)  # whatever started the ranks says how to resume
        if os.environ["RANK"] == "0":
            print_ending(run)
        return
    if _is_finished(run):
        print(f"The run in {run.dump_folder} is finished: raise --training.steps to continue")
        return
    with locked(Path(run.dump_folder), "--dump_folder"):
        pass  # the first rank will hold the lock; fail here, before any rank is started
    own = [] if nproc is None else ["--nproc", str(nproc)]
    with _command_said([path, *overrides], own):
        code = launch(ranks, ["train", path, *overrides], lambda: train(run))
    state = read_state(Path(run.dump_folder))
    if state is not None and state.word == "stopped" and code == 0:
        command = shlex.join(["mixit-titan", "train", path, *own, *overrides])
        print(f"Stopped after step {state.step}: {state.said}. Resume it with", file=sys.stderr)
        print(f"  {command}", file=sys.stderr)
        code = 128 + (signal.SIGINT if was_interrupted() else signal.SIGTERM)
    if code:
        sys.exit(code)
    if ranks == 1:  # of several, the first one has printed it
        print_ending(run)


def _is_finished(run: Trainer.Config) -> bool:
    """Whether nothing is left to do. A run that was killed between its last checkpoint and its last
    validation still has to validate; one that has only its weights left cannot resume."""
    if latest_step(run) != run.training.steps:
        return False
    state, checkpoint = read_state(Path(run.dump_folder)), run.checkpoint
    weights_alone = checkpoint.last_save_model_only or checkpoint.last_save_in_hf
    return weights_alone or state is None or state.word == "finished"


@contextlib.contextmanager
def _command_said(words: list[str], own: list[str]) -> Iterator[None]:
    """Append the command that resumes a diverged run to the sentence that ends it."""
    try:
        yield
    except Diverged as failure:
        path, *overrides = words
        kept = _without(overrides, {*failure.overrides[::2], *_LOADED})
        command = ["mixit-titan", "train", path, *own, *kept, *failure.overrides]
        raise RunFailed(f"{failure}:\n  {shlex.join(command)}") from failure


def _without(overrides: list[str], keys: set[str]) -> list[str]:
    """The overrides (`--key value`, `--key=value` or `--flag`) without those of some keys."""
    kept: list[str] = []
    dropped = False
    for word in overrides:
        if word.startswith("--"):
            dropped = word.partition("=")[0] in keys
        if not dropped:
            kept.append(word)
    return kept


def _same_ranks(world_size: int) -> list[str]:
    """The option that starts as many ranks again, if all of them are on this machine."""
    here = os.environ.get("LOCAL_WORLD_SIZE") == str(world_size)
    return ["--nproc", str(world_size)] if here and world_size > 1 else []


def _trainer_config(plan: Plan, model: MixitLlama.Config) -> Trainer.Config:
    sections = plan.sections
    data, validator, metrics = sections.data, sections.validator, sections.metrics
    found = [_prepared(path, data, vocab=model.shape.vocab) for path in data.paths]
    folder, tokenizer = found[0]
    loader = RowLoader.Config(
        dataset_path=folder,
        sources=[
            dataclasses.replace(source, path=path)
            for source, (path, _) in zip(plan.sources, found, strict=False)
        ],
        weights=plan.weights,
        packing=data.packing,
        seed=data.seed,
        workers=data.workers,
        positions=data.packing == "stream" or _needs_positions(model),
    )
    # The same rows for any seed, and no processes to start for each validation.
    validator.dataloader = dataclasses.replace(loader, split="validation", seed=0, workers=0)
    validator.last_step = metrics.last_step = sections.training.steps
    metrics.run_name = _run_name(Path(plan.dump_folder).name, model.stack.folder)
    optimizer = {k: v for k, v in vars(sections.optimizer).items() if k != "groups"}
    return EvaluatingTrainer.Config(
        model_spec=model_spec(sections.model.flavor, model),
        dump_folder=plan.dump_folder,
        hf_assets_path=tokenizer,
        tokenizer=tokenizer_config(tokenizer),
        dataloader=loader,
        validator=validator,
        training=sections.training,
        optimizer=optimizer_config(**optimizer, groups=plan.groups, phases=plan.phases),
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
        eval=sections.eval,
    )


def _run_name(folder: str, stack: str) -> str:
    """The name of the folder, with the stack appended unless the name contains it."""
    return folder if stack in folder else f"{folder}_{stack}"


def _needs_positions(model: MixitLlama.Config) -> bool:
    """Whether attention builds its masks from positions, as flex and varlen attention do."""
    inner = model.first_attention.inner_attention
    return model.stack.attends and not isinstance(inner, ScaledDotProductAttention.Config)


def _loss(section: LossSection, model: MixitLlama.Config) -> BaseLoss.Config:
    loss = CrossEntropyLoss.Config(global_vocab_size=model.shape.vocab)
    if section.num_chunks == 1:
        return loss
    return ChunkedLossWrapper.Config(num_chunks=section.num_chunks, loss_fn=loss)
