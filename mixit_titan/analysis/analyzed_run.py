"""The run that is analyzed: its model, the sequences it reads, and its model at initialization.

The folder is that of a task (`mixit-titan task`, or one run of a sweep) or of a training run.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtitan.components.tokenizer import BaseTokenizer

from mixit_titan.analysis.sequences import Sequences, cut, task_sequences, text_sequences
from mixit_titan.analysis.token_names import shown, text_token_name
from mixit_titan.analysis.untrained import Start, body, started
from mixit_titan.config.sections import MixingSection
from mixit_titan.data.readers import read_pieces
from mixit_titan.data.shards import is_prepared, open_split, read_manifest
from mixit_titan.data.sources import STDLIB, find_corpus
from mixit_titan.data.tokenizers import fingerprint
from mixit_titan.errors import ConfigError
from mixit_titan.log import logger
from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.recipes import Recipe, find_recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack
from mixit_titan.model.variants import VARIANTS
from mixit_titan.reading import WrongFile, read_json
from mixit_titan.runtime.trained import Trained, load_trained
from mixit_titan.tasks.models import build_model, model_config
from mixit_titan.tasks.settings import Run
from mixit_titan.tasks.task import task_name
from mixit_titan.tasks.trained import load_trained_task

_LONGEST = 256  # tokens in a sequence of text
_STD = (float, str)
_SCALES = {"init_std?": (*_STD, {"*": _STD}), "embedding_std?": _STD}
_SAVED = {
    "dataloader?": {"dataset_path?": str},
    "model_spec?": {"model?": {"shape?": _SCALES}},
}


@dataclass(frozen=True, kw_only=True)
class AnalyzedRun:
    """A trained run, with everything that an analysis reads from it."""

    model: MixitLlama
    """The trained model, without its output head."""
    variant: str
    title: str
    """`frozen_qk on retrieval`"""
    sequences: Sequences
    test: Sequences | None
    """All test examples of a task; None for a language model."""
    token_name: Callable[[int], str]
    tokenizer: BaseTokenizer | None
    """The tokenizer of a language model; None for a task."""
    own_start: Callable[[], MixitLlama]
    """Builds this model as it was at initialization."""
    start: Start
    """Builds the model that this run would have had at initialization with another variant and
    depth."""


def load_analyzed_run(
    run_dir: Path, *, text: Path | None, count: int, task: str | None = None
) -> AnalyzedRun:
    """Load a run with `count` sequences to read, from its own data or from the file `text`. `task`
    names the class of a task that is defined outside this package."""
    if not run_dir.is_dir():
        what = "is not a directory" if run_dir.exists() else "does not exist"
        raise ConfigError(
            f"{run_dir} {what}: name the folder of a finished task or of a training run"
        )
    if (run_dir / "result.json").is_file():
        if text is not None:
            raise ConfigError(
                f"--text is for language models: {run_dir} is a task, which has its own examples"
            )
        return _task_run(run_dir, count, task)
    if (run_dir / "checkpoint").is_dir():
        if task is not None:
            raise ConfigError(f"--task is for tasks: {run_dir} is a training run, leave it out")
        return _text_run(run_dir, text, count)
    raise ConfigError(
        f"{run_dir} has neither the result.json of a finished task nor the checkpoint folder of a "
        "training run: name the folder of such a run (for a sweep, the folder of one of its runs)"
    )


def _task_run(run_dir: Path, count: int, task: str | None) -> AnalyzedRun:
    run, model = load_trained_task(run_dir, task=task)
    settings, name = run.settings, task_name(run.task)
    if settings.variant == "lstm":
        raise ConfigError(f"{run_dir} is an LSTM, which has no attention heads to analyze")
    _, test = run.task.split(seed=settings.seed, train=settings.train, test=settings.test)
    examples = task_sequences(test, run.task.padding, f"{name}'s test set")
    return AnalyzedRun(
        model=body(model),
        variant=settings.name,
        title=f"{settings.name} on {name}",
        sequences=examples.take(slice(count)),
        test=examples,
        token_name=lambda token: shown(run.task.token_name(token)),
        tokenizer=None,
        own_start=lambda: body(build_model(run)),
        start=lambda variant, layers: started(model_config(_as(run, variant, layers))),
    )


def _as(run: Run, variant: str, layers: int) -> Run:
    """The run with another variant and depth; options of its mixer hold for that mixer alone."""
    own, none = run.settings.layer_stack(), dict.fromkeys(("stack", "mixer", "freeze"))
    settings = dataclasses.replace(run.settings, variant=variant, layers=layers, **none)
    if own is None or own.mixes != VARIANTS[variant].mixes:
        settings = dataclasses.replace(settings, recipe=None, causal=True, init_std=None)
    return Run(task=run.task, settings=settings)


def _text_run(run_dir: Path, text: Path | None, count: int) -> AnalyzedRun:
    trained = load_trained(run_dir)
    config, saved = trained.model.config, _saved_config(run_dir)
    shape = _with_start_scales(config.shape, saved, run_dir)
    recipes = {True: find_recipe(MixingSection.recipe), False: Recipe()}
    recipes[config.stack.mixes] = config.recipe

    def start(stack: Stack, layers: int) -> MixitLlama:
        begun = llama_config(
            dataclasses.replace(shape, layers=layers),
            stack,
            recipes[stack.mixes],
            init_seed=config.init_seed,
            mixing_seed=config.mixing_seed,
            attention="sdpa",
        )
        return started(begun)

    return AnalyzedRun(
        model=body(trained.model),
        variant=config.stack.name,
        title=f"{config.stack.name} after {trained.step:,} steps",
        sequences=_text(trained, saved, text, count),
        test=None,
        token_name=lambda token: text_token_name(trained.tokenizer, token),
        tokenizer=trained.tokenizer,
        own_start=lambda: start(config.stack, shape.layers),
        start=lambda variant, layers: start(VARIANTS[variant], layers),
    )


def _text(trained: Trained, saved: dict[str, Any], text: Path | None, count: int) -> Sequences:
    """Sequences from the file, else from the run's validation data, else from the standard
    library."""
    size = {"count": count, "length": min(_LONGEST, trained.model.config.max_seq_len)}
    if text is not None:
        return text_sequences(read_pieces(text), trained.tokenizer, source=str(text), **size)
    folder = saved.get("dataloader", {}).get("dataset_path", "")
    if is_prepared(folder):
        manifest = read_manifest(folder)
        if manifest.tokenizer.fingerprint == fingerprint(trained.tokenizer):
            split = open_split(folder, "validation")
            ids = split.read(0, min(split.tokens, size["count"] * size["length"]))
            return cut(ids, source="the run's validation data", **size)
    logger.warning(f"The run's data is not in {folder!r}: reading the standard library instead")
    documents = (d.text for d in find_corpus(STDLIB).documents() if d.split == "validation")
    return text_sequences(documents, trained.tokenizer, source="the standard library", **size)


def _saved_config(run_dir: Path) -> dict[str, Any]:
    """The run's settings as torchtitan saved them; if there are none, empty, with a warning."""
    try:
        return read_json(run_dir / "config.json", _SAVED, advice="default settings are assumed")
    except FileNotFoundError:
        logger.warning(f"{run_dir} has no config.json: default settings are assumed")
    except WrongFile as wrong:
        logger.warning(str(wrong))
    return {}


def _with_start_scales(shape: Shape, saved: dict[str, Any], run_dir: Path) -> Shape:
    """The shape with the scales of initialization, which a checkpoint does not record."""
    written = saved.get("model_spec", {}).get("model", {}).get("shape", {})
    scales = {key: written[key] for key in ("init_std", "embedding_std") if key in written}
    try:
        return dataclasses.replace(shape, **scales)
    except ConfigError as error:
        raise WrongFile(run_dir / "config.json", str(error), "copy the run again") from None
