"""What a run's settings must satisfy together, checked before any process group exists. The limits
of the model itself are in model/limits.py."""

import math
import operator
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torchtitan.components.checkpointer import DATALOADER, OPTIMIZER
from torchtitan.distributed import ParallelDims
from torchtitan.trainer import Trainer

from mixit_titan.config.ranks import degrees_product
from mixit_titan.config.sections import Sections
from mixit_titan.data.loader import RowLoader
from mixit_titan.data.shards import TokenizerRecord, read_manifest
from mixit_titan.device import has_gpu
from mixit_titan.errors import ConfigError, unknown
from mixit_titan.host_memory import check_host_memory
from mixit_titan.json_form import NUMBER
from mixit_titan.model.accounting import least_bytes, weights
from mixit_titan.model.hugging_face import differences_to_llama
from mixit_titan.model.identity import identity
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.stack import Stack
from mixit_titan.reading import WrongFile, check_kinds, json_if_good
from mixit_titan.runtime.checkpoint import IdentifiedCheckpointer, latest_step
from mixit_titan.runtime.checkpoint_files import newest_to_resume, steps
from mixit_titan.runtime.checkpoint_identity import check_identity
from mixit_titan.runtime.optimizer import kind
from mixit_titan.runtime.tensor_reader import load_state

_ROPE = ({"factor?": NUMBER}, None)
_LLAMA = {"model_type": str, "rope_parameters?": _ROPE, "rope_scaling?": _ROPE}
_FILES, _FOLDERS = ("state", "metrics.jsonl", "config.json"), ("heartbeat", "logs", "tokenizer")

SHARD_OVER_ALL = (
    *("--parallelism.data_parallel_replicate_degree", "1"),
    *("--parallelism.data_parallel_shard_degree", "-1"),
)
"""Overrides by which all ranks, however many, share one copy of the model."""


NEED_GPUS = {
    "training.enable_cpu_offload": (True, "false"),
    "checkpoint.async_mode": ("async_with_pinned_mem", "async"),
    "optimizer.implementation": ("fused_opt_states_bf16", "fused"),
    "profiler.enable_memory_snapshot": (True, "false"),
}
"""Values that torch supports on GPUs only, and what to set instead."""


def check_sections(sections: Sections, *, on_gpus: bool) -> None:
    """Refuse combinations of settings that the range of each number (config/ranges.py) cannot
    exclude."""
    schedule, steps = sections.lr_scheduler, sections.training.steps
    if schedule.total_steps is not None and schedule.total_steps < steps:
        raise ConfigError(
            f"lr_scheduler.total_steps is {schedule.total_steps}: the learning rate would be below "
            f"0 after them, so it must be at least training.steps = {steps}"
        )
    profiler = sections.profiler
    if profiler.profile_freq < profiler.profiler_warmup + profiler.profiler_active:
        raise ConfigError(
            f"profiler.profile_freq is {profiler.profile_freq}: it must be at least "
            f"profiler.profiler_warmup = {profiler.profiler_warmup} and profiler.profiler_active = "
            f"{profiler.profiler_active} together"
        )
    for key, (value, instead) in NEED_GPUS.items():
        if operator.attrgetter(key)(sections) == value and not on_gpus:
            shown = str(value).lower()
            raise ConfigError(
                f"{key} is {shown}, which needs a GPU, and the ranks have none: "
                f"set --{key} {instead}"
            )
    _check_backend(sections.compile.backend)


def _check_backend(name: str) -> None:
    if name == "inductor":
        return
    from torch._dynamo import list_backends  # takes seconds, and most runs do not need it

    if name not in (known := list_backends(exclude_tags=())):
        raise unknown("compile.backend", name, known)


def set_batch(sections: Sections, world_size: int, *, given: dict[str, Any]) -> None:
    """Fill in training.local_batch_size, or refuse a global batch that the ranks cannot share.
    `given` is what the file says under [training]: a global batch alone is divided among the
    ranks."""
    training = sections.training
    try:
        dims = ParallelDims.from_config(sections.parallelism, world_size)
    except (AssertionError, ValueError) as error:
        said = f"[parallelism] does not fit {world_size} rank(s): {error}".rstrip(": ")
        product = degrees_product(sections.parallelism)
        many = f" ({product})" if product else ""
        raise ConfigError(
            f"{said}. Start as many ranks as the product of its degrees{many}, or change them, for "
            f"example by {' '.join(SHARD_OVER_ALL)}"
        ) from error
    ranks = dims.dp_replicate * dims.dp_shard
    batch = training.global_batch_size
    if batch == -1:
        return
    if "local_batch_size" not in given:
        if batch % ranks:
            raise ConfigError(
                f"training.global_batch_size = {batch} cannot be divided among {ranks} "
                "data-parallel ranks: choose a multiple, or fewer ranks"
            )
        training.local_batch_size = batch // ranks
    local = training.local_batch_size
    if batch % (local * ranks):
        cure = "choose a multiple, or fewer ranks"
        if batch % ranks == 0:
            cure = f"--training.local_batch_size {math.gcd(local, batch // ranks)} divides it"
        raise ConfigError(
            f"training.global_batch_size = {batch} is not a multiple of training.local_batch_size "
            f"= {local} times {ranks} data-parallel ranks: {cure}"
        )


def check_eval(sections: Sections) -> None:
    """Refuse evaluation tasks that do not exist, or a parallelism under which ranks do not have
    complete rows."""
    if not sections.eval.tasks:
        return
    for name in ("tensor", "context", "pipeline"):
        degree = getattr(sections.parallelism, f"{name}_parallel_degree")
        if degree > 1:
            raise ConfigError(
                f"eval.tasks is not supported with parallelism.{name}_parallel_degree = {degree}: "
                "leave it out, and evaluate the checkpoints with mixit-titan eval"
            )
    sections.eval.load()


def check_loss(sections: Sections, model: MixitLlama.Config, phases: Sequence[Stack]) -> None:
    """Refuse a chunked loss that does not divide the sequence or that torchtitan cannot compute.
    `phases` are the stacks of the run, where what is trained changes."""
    chunks, seq_len = sections.loss.num_chunks, sections.training.seq_len
    if chunks == 1:
        return
    if seq_len % chunks:
        raise ConfigError(
            f"loss.num_chunks = {chunks} does not divide training.seq_len = {seq_len}"
        )
    for stack in [model.stack, *phases]:
        if all(w.part == "head" for w in weights(model.shape, stack) if w.trained):
            # torchtitan mistakes hidden states without a gradient for a validation.
            raise ConfigError("loss.num_chunks must be 1 if only the head is trained")


def check_data(run: Trainer.Config) -> None:
    """Refuse data whose tokenizer exceeds the vocabulary, or that have not even one row."""
    tokenizer = _tokenizer(run.dataloader)
    vocab = run.model_spec.model.vocab_size
    if tokenizer.vocab_size > vocab:
        raise ConfigError(
            f"the tokenizer {tokenizer.name!r} has {tokenizer.vocab_size} entries, more than "
            f"model.vocab = {vocab}: raise model.vocab or choose another tokenizer"
        )
    splits = [run.dataloader, *([run.validator.dataloader] if run.validator.enable else [])]
    for split in splits:
        split.packed(run.training.seq_len)  # raises if there is not even one row


def _tokenizer(loader: RowLoader.Config) -> TokenizerRecord:
    """The tokenizer that all sources share."""
    ours = {name: read_manifest(s.dataset_path).tokenizer for name, s in loader.by_source().items()}
    first, *others = ours
    for other in others:
        if ours[other].fingerprint != ours[first].fingerprint:
            raise ConfigError(
                f"data.sources: {first!r} has the tokenizer {ours[first].name!r} and {other!r} has "
                f"another, {ours[other].name!r}: prepare them with the same tokenizer"
            )
    return ours[first]


def check_memory(run: Trainer.Config, ranks: int) -> None:
    """Refuse a run on CPUs whose ranks cannot fit into this machine's memory."""
    if has_gpu():
        return
    model, training = run.model_spec.model, run.training
    rows, seq_len = training.local_batch_size, training.seq_len
    needed = least_bytes(model.shape, model.stack, rows=rows, seq_len=seq_len, ranks=ranks)
    logits = 4 * rows * seq_len * model.shape.vocab
    chunks = getattr(run.loss, "num_chunks", 1)
    check_host_memory(
        needed - logits + logits // chunks,
        "lower training.local_batch_size or the sizes of [model], or use a larger machine",
    )


def check_hugging_face(checkpoint: IdentifiedCheckpointer.Config, model: MixitLlama.Config) -> None:
    """Refuse to start from a Hugging Face Llama whose shape is not the model's, or to end in a
    format that transformers cannot load."""
    if checkpoint.last_save_in_hf and not model.stack.only("attention"):
        raise ConfigError(
            "checkpoint.last_save_in_hf is for variants that attend: transformers has no model for "
            "others. `mixit-titan export` writes any stack, with a modeling file of its own"
        )
    folder = checkpoint.initial_load_path
    if not checkpoint.initial_load_in_hf:
        if folder and any(Path(folder).glob("*.safetensors")):
            raise ConfigError(
                f"checkpoint.initial_load_path = {folder!r} is a Hugging Face model: add "
                "--checkpoint.initial_load_in_hf"
            )
        return
    if not folder:
        raise ConfigError(
            "checkpoint.initial_load_in_hf needs checkpoint.initial_load_path: name the folder of "
            "a Hugging Face Llama (config.json and *.safetensors)"
        )
    theirs = json_if_good(Path(folder) / "config.json", _LLAMA)
    if theirs is None:
        raise ConfigError(
            f"{folder} has no config.json of a Hugging Face model: name the folder of a Llama in "
            "checkpoint.initial_load_path"
        )
    kind = theirs["model_type"]
    if kind != "llama":
        raise ConfigError(f"{folder} holds a {kind!r}: only a 'llama' can be loaded")
    files = [file.name for file in Path(folder).glob("*.safetensors*")]
    check_kinds(Path(folder), files=tuple(files))
    for name in files:
        if name.endswith(".safetensors"):
            _check_header(Path(folder) / name)
    if not any(name.endswith(".safetensors") for name in files):
        raise ConfigError(
            f"{folder} has no *.safetensors: download the model's weights in that format"
        )
    different = differences_to_llama(theirs, model)
    if different:
        raise ConfigError(
            f"{folder} does not fit: {'; '.join(different)}. Set these values in [model]"
        )


def _check_header(file: Path) -> None:
    """Refuse a file that is not safetensors: DCP would print a traceback of its own."""
    try:
        with safe_open(file, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise WrongFile(file, str(error), "download it again") from None


def check_folder(run: Trainer.Config) -> None:
    """Refuse a run whose folder cannot be written, or holds a checkpoint that this run cannot
    resume."""
    try:
        Path(run.dump_folder).mkdir(parents=True, exist_ok=True)
        writable = os.access(run.dump_folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise ConfigError(f"dump_folder = {run.dump_folder!r} is not a writable directory")
    check_kinds(Path(run.dump_folder), files=_FILES, folders=(*_FOLDERS, run.checkpoint.folder))
    if not run.checkpoint.enable:
        return
    folder = Path(run.dump_folder) / run.checkpoint.folder
    full, step = newest_to_resume(folder), latest_step(run)
    _check_load_step(run.checkpoint.load_step, folder)
    if step is None:
        _check_initial(run.checkpoint.initial_load_path)
        return
    if run.checkpoint.load_step == -1 and step > run.training.steps:
        raise ConfigError(
            f"the run in {run.dump_folder} is at step {step}, and training.steps is "
            f"{run.training.steps}: raise it, or choose another --dump_folder"
        )
    if full is None and step < run.training.steps:
        raise ConfigError(
            f"{folder} has weights in Hugging Face's format, but no checkpoint to resume from: "
            "choose another --dump_folder, with --checkpoint.initial_load_path "
            f"{folder}/step-{step} and --checkpoint.initial_load_in_hf"
        )
    if full is not None:
        check_identity(
            f"{folder}/step-{full}",
            identity(run.model_spec.model)
            | run.dataloader.identity(run.training.seq_len)
            | kind(group.optimizer_name for group in run.optimizer.param_groups),
            as_of=partial(run.dataloader.as_of, seq_len=run.training.seq_len),
            rows=DATALOADER not in run.checkpoint.exclude_from_loading,
            optimizer=OPTIMIZER not in run.checkpoint.exclude_from_loading,
        )
        if run.dataloader.sources and DATALOADER not in run.checkpoint.exclude_from_loading:
            _check_given(run, f"{folder}/step-{full}")


def _check_given(run: Trainer.Config, checkpoint: str) -> None:
    """Refuse weights under which a source would have given fewer rows than the checkpoint has read
    from it."""
    rank = {"dp_world_size": 1, "dp_rank": 0, "local_batch_size": 1}
    loader = run.dataloader.build(**rank, seq_len=run.training.seq_len)
    state = {DATALOADER: loader.state_dict()}
    load_state(checkpoint, state, no_dist=True)
    loader.load_state_dict(state[DATALOADER])


def _check_load_step(step: int, folder: Path) -> None:
    there = sorted(steps(folder))
    if step != -1 and step not in there:
        found = f"only {', '.join(map(str, there))}" if there else "no checkpoint"
        raise ConfigError(
            f"checkpoint.load_step is {step} and {folder} has {found}: name one that exists, or "
            "leave it out to load the newest"
        )


def _check_initial(path: str | None) -> None:
    """Check where a new run takes its weights from; a run that resumes no longer needs it."""
    if path and not Path(path).is_dir():
        raise ConfigError(
            f"checkpoint.initial_load_path = {path!r} is not a folder: name the folder of a "
            "checkpoint, such as /home/me/runs/NAME/checkpoint/step-N"
        )
