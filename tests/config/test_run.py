"""Every shipped file loads; every mistake is one sentence."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

from mixit_titan.bench.arguments import read_arguments
from mixit_titan.bench.runs import read_point
from mixit_titan.config.plan import plan_run
from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.config.toml import apply_overrides
from mixit_titan.data.prepare import prepare
from mixit_titan.data.sources import find_corpus
from mixit_titan.errors import ConfigError
from mixit_titan.model.hardware import GPUS
from mixit_titan.model.variants import find_stack
from tests.data.tokens import stories, write_jsonl

DEBUG = str(shipped_configs()["debug_mixit"])
STANDARD = str(shipped_configs()["debug_standard"])
# What a file for GPUs names that this machine may not have.
ANYWHERE = ["--device", "auto", "--data.path", "stdlib", "--data.tokenizer", "bytes"]
ANYWHERE += ["--checkpoint.async_mode", "async"]
RANKS = {"8b_fineweb_edu": [64], "1b_fineweb_edu": [8, 32], "410m_fineweb_edu": [1, 32]}


@pytest.mark.parametrize("name", shipped_configs())
def test_every_shipped_file_loads(name: str) -> None:
    for ranks in RANKS.get(name, [1, 2, 8]):
        run = load_run(str(shipped_configs()[name]), ANYWHERE, world_size=ranks)
        batch = run.training.global_batch_size
        assert batch % (run.training.local_batch_size * ranks) == 0
        assert run.training.seq_len <= run.model_spec.model.shape.seq_len
        assert run.checkpoint.enable and not run.checkpoint.last_save_model_only


def test_the_papers_settings() -> None:
    run = load_run(str(shipped_configs()["paper_fineweb_edu"]), ANYWHERE, world_size=8)
    shape = run.model_spec.model.shape
    assert (shape.layers, shape.width, shape.heads, shape.hidden) == (12, 512, 8, 2048)
    assert (shape.vocab, run.training.seq_len, run.training.steps) == (128256, 256, 40000)
    assert run.training.global_batch_size == 512
    assert run.optimizer.param_groups[0].optimizer_kwargs["lr"] == 5e-4


def test_overrides_of_every_kind() -> None:
    table = {"training": {"steps": 1}}
    apply_overrides(
        table,
        [
            *("--training.steps", "7", "--compile.enable", "--model.freeze=qk,mlp"),
            *("--optimizer.lr", "1e-3", "--model.variant", "mixit", "--data.path", "a b/c"),
        ],
    )
    assert table == {
        "training": {"steps": "7"},
        "compile": {"enable": "true"},
        "model": {"freeze": "qk,mlp", "variant": "mixit"},
        "optimizer": {"lr": "1e-3"},
        "data": {"path": "a b/c"},
    }


def test_a_word_takes_the_type_of_its_key() -> None:
    words = ["--dump_folder", "2026-11-16", "--optimizer.betas", "0.8,0.9", "--compile.enable"]
    run = load_run(STANDARD, [*words, "--training.max_norm", "2"], world_size=1)
    assert run.dump_folder == "2026-11-16" and run.compile.enable is True
    assert run.optimizer.param_groups[0].optimizer_kwargs["betas"] == (0.8, 0.9)
    assert run.training.max_norm == 2


def test_the_variants_of_a_file_have_folders_of_their_own() -> None:
    paper = str(shipped_configs()["paper_fineweb_edu"])
    assert load_run(DEBUG, [], world_size=1).dump_folder == "runs/debug_mixit"
    assert load_run(paper, ANYWHERE, world_size=1).dump_folder == "runs/paper_fineweb_edu_mixit"


def test_a_text_is_tokenised_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 9000)
    text = ["--data.path", str(tmp_path / "a.txt")]
    folder = Path(load_run(DEBUG, text, world_size=1).dataloader.dataset_path)
    before = (folder / "manifest.json").stat().st_mtime_ns
    assert load_run(DEBUG, text, world_size=1).dataloader.dataset_path == str(folder)
    assert (folder / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match=r"has 451 validation tokens, fewer than one row"):
        load_run(DEBUG, [*text, "--model.seq_len", "512"], world_size=1)


def test_any_set_of_parts_can_be_frozen(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[model]\nmixer = "attention"\nfreeze = ["mlp", "qk"]\n')
    run = load_run(str(file), [], world_size=1)
    assert run.model_spec.model.stack.frozen == ("qk", "mlp")
    run = load_run(str(file), ["--model.freeze", "norm"], world_size=1)
    assert run.model_spec.model.stack.frozen == ("norm",)


def test_freeze_takes_the_place_of_a_variants_own() -> None:
    run = load_run(STANDARD, ["--model.freeze", "v,norm"], world_size=1)
    assert run.model_spec.model.stack.frozen == ("v", "norm")
    run = load_run(DEBUG, ["--model.freeze", "mlp"], world_size=1)
    assert run.model_spec.model.stack.name == "mixing-freeze-mlp"


def test_a_stack_says_what_each_layer_is(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[model]\nstack = "mixit*3 standard"\nfreeze = ["embedding"]\n')
    run = load_run(str(file), ["--model.mixing.recipe", "official"], world_size=1)
    model = run.model_spec.model
    assert model.stack == find_stack(4, stack="mixit standard@3", freeze=["embedding"])
    assert model.recipe.sink_head
    assert run.dump_folder == "runs/run_mixitx3_standard_freeze-embedding"
    for words, name in {  # what the command line says takes the place of what the file says
        "--model.variant mixit --model.freeze norm": "mixing-freeze-norm",
        "--model.stack frozen_qk@upper": "standard*2 frozen_qk*2 freeze-embedding",
    }.items():
        stack = load_run(str(file), words.split(), world_size=1).model_spec.model.stack
        assert stack.name == name
    stack = load_run(DEBUG, ["--model.stack", "mixit*3 standard"], world_size=1)
    assert stack.dump_folder == "runs/debug_mixit_mixitx3_standard"


WRONG_STACKS = {
    "--model.stack standard --model.variant mixit": "model.stack = 'standard' says what the layers "
    "are, and so does model.variant = 'mixit'",
    "--model.stack standard*3": "is 3 layers, which do not fill model.layers = 4",
    "--model.stack standrd": "unknown variant or mixer 'standrd' in the stack 'standrd': did you",
    "--model.stack standard@uper": "unknown place 'uper'",
    "--model.stack standard --model.mixing.seed 1": "only for the mixing mixer, and the variant is",
    "--model.stack mixit@0 --parallelism.context_parallel_degree 2": "is not supported with "
    "the mixing mixer",
    "--model.stack mixit@0 --checkpoint.last_save_in_hf --checkpoint.last_save_model_only": "is "
    "for variants that attend",
    "--model.stack mixing-freeze-qk": "the mixing mixer has no queries and keys",
}


@pytest.mark.parametrize(("overrides", "message"), WRONG_STACKS.items())
def test_a_stack_that_cannot_be_is_one_sentence(overrides: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_run(STANDARD, overrides.split(), world_size=2)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_recipes_and_their_knobs() -> None:
    official = ["--model.mixing.recipe", "official"]
    recipe = load_run(DEBUG, official, world_size=1).model_spec.model.recipe
    assert recipe.sink_head and recipe.linear_scale and recipe.residual == 0.5
    changed = [*official, "--model.mixing.residual", "plain", "--model.mixing.std", "0.25"]
    recipe = load_run(DEBUG, changed, world_size=1).model_spec.model.recipe
    assert recipe.residual == "plain" and recipe.std == 0.25 and recipe.sink_head


def test_a_global_batch_is_divided_among_the_ranks() -> None:
    assert load_run(DEBUG, [], world_size=1).training.local_batch_size == 8
    assert load_run(DEBUG, [], world_size=4).training.local_batch_size == 2


WRONG = {
    "--training.step 5": "unknown key 'training.step' in .*: did you mean 'training.steps'",
    "--trainig.steps 5": "unknown key 'trainig' in .*: did you mean 'training'",
    "--model.varient mixit": "did you mean 'model.variant'",
    "--model.mixing.sead 1": "did you mean 'model.mixing.seed'",
    "--training.steps many": "training.steps in .* is 'many': expected an integer",
    "--training.steps 1.5": "training.steps in .* is 1.5: expected an integer",
    "--training.steps true": "training.steps in .* is True: expected an integer",
    "--compile.enable 3": "compile.enable in .* is 3: expected true or false",
    "--optimizer.lr fast": "optimizer.lr in .* is 'fast': expected a number",
    "--model.variant mixit*3": r"model.variant 'mixit\*3' is a stack of pairs: name it with",
    "--model.variant mixti": "unknown model.variant 'mixti': did you mean 'mixit'",
    "--model.flavor 7b": "unknown model.flavor '7b' .*8b",
    "--model.mixing.recipe papper": "unknown model.mixing.recipe 'papper': did you mean 'paper'",
    "--model.mixing.std wide": "is 'wide': expected a number or 'width', 'heads', 'length'",
    "--model.heads 5": "model.heads = 5 does not divide model.width = 128",
    "--model.layers 0": "model.layers is 0: it must be in 1..10000",
    "--model.vocab 100": "'bytes' has 257 entries, more than model.vocab = 100",
    "--data.path no/where": "data.path = 'no/where' does not exist",
    "--data.packing rows": "data.packing in .* is 'rows': expected 'documents', 'stream'",
    "--data.workers -1": "data.workers is -1: it must be in 0..256",
    "--validator.rows 0": "validator.rows is 0: it must be at least 1",
    "--validator.steps 3": "unknown key 'validator.steps'",
    "--data.tokenizer no/where": "the tokenizer 'no/where' is neither 'bytes', nor",
    "--activation_checkpoint.mode some": "activation_checkpoint.mode in .* is 'some'",
    "--loss.num_chunks 3": "loss.num_chunks = 3 does not divide training.seq_len = 128",
    "--checkpoint.interval 0": "checkpoint.interval is 0: it must be at least 1",
    "--training.seq_len 4096": "4096 tokens is longer than the model's 128",
    "--parallelism.tensor_parallel_degree 2": "does not fit 1 rank",
    "--training 5": "training in .* is '5': it must be a section",
    "--training.local_batch_size 0": "training.local_batch_size is 0: it must be in 1..1048576",
    "--training.global_batch_size 0": "training.global_batch_size is 0: it must be in 1.*, or -1",
    "--metrics.log_freq 0": "metrics.log_freq is 0: it must be at least 1",
    "--validator.freq 0": "validator.freq is 0: it must be at least 1",
    "--loss.num_chunks -4": "loss.num_chunks is -4: it must be at least 1",
    "--optimizer.betas 0.9": "betas is .0.9.: it must be two numbers",
    "--model.mixing.base_width -1": "base_width is -1: it must be above 0",
    "--model.mixing 3": "model.mixing in .* is '3': it must be a section",
    "--checkpoint.create_seed_checkpoint true": "unknown key 'checkpoint.create_seed_checkpoint'",
    "--parallelism.spmd_backend spmd_types": "is not supported yet with the mixing mixer",
    "stray": "unexpected argument 'stray'",
    "--lr_scheduler.total_steps 0": "lr_scheduler.total_steps is 0: it must be in 1..",
    "--lr_scheduler.total_steps 5": "total_steps is 5: .* at least training.steps = 60",
    "--lr_scheduler.decay_ratio nan": "lr_scheduler.decay_ratio is nan: it must be in 0..1",
    "--lr_scheduler.decay_ratio 1.5": "lr_scheduler.decay_ratio is 1.5: it must be in 0..1",
    "--lr_scheduler.min_lr_factor nan": "lr_scheduler.min_lr_factor is nan: it must be in 0..1",
    "--optimizer.lr nan": "optimizer.lr is nan: it must be above 0",
    "--optimizer.lr inf": "optimizer.lr is inf: it must be finite and above 0",
    "--optimizer.eps -1.0": "optimizer.eps is -1.0: it must be at least 0",
    "--optimizer.weight_decay -1.0": "optimizer.weight_decay is -1.0: it must be in 0..1000",
    "--optimizer.betas 5,5": "optimizer.betas is .5, 5.: it must be at least 0 and below 1",
    "--training.max_norm -1": "training.max_norm is -1: it must be above 0",
    "--training.max_norm nan": "training.max_norm is nan: it must be above 0",
    "--model.init_std -1.0": "model.init_std is -1.0: it must be in 0..1000",
    "--model.init_std nan": "model.init_std is nan: it must be in 0..1000",
    "--model.rope_theta nan": "model.rope_theta is nan: it must be above 0",
    "--model.mixing.activation_c inf": "activation_c is inf: it must be a finite number",
    "--model.mixing.depth_alpha 1e30": "model.mixing.depth_alpha is 1e.30: it must be in -8..8",
    "--watch.step 1e-9": "watch.step is 1e-09: it must be in 1..",
    "--model.layers 1000000000000000000": "model.layers is 1000000000000000000: it must be in 1..",
    "--data.workers 100000": "data.workers is 100000: it must be in 0..256",
    "--debug.seed 99999999999999999999": "debug.seed is 99999999999999999999: it must be in 0..",
    "--profiler.profile_freq 0": "profiler.profile_freq is 0: it must be at least 1",
    "--profiler.profile_freq 2": "profile_freq is 2: it must be at least profiler.profiler_warmup",
    "--comm.init_timeout_seconds 0": "comm.init_timeout_seconds is 0: it must be in 1..",
    "--compile.backend x": "unknown compile.backend 'x' .*inductor",
    "--compile.components a": "unknown compile.components 'a' .allowed: model, loss",
    "--checkpoint.exclude_from_loading a": "unknown checkpoint.exclude_from_loading 'a' ",
    "--parallelism.expert_parallel_degree 2": "expert_parallel_degree is 2: it must be 1",
    "--training.enable_cpu_offload": "enable_cpu_offload is true, which needs a GPU",
    "--checkpoint.async_mode async_with_pinned_mem": "GPU, .* --checkpoint.async_mode async",
    "--optimizer.implementation fused_opt_states_bf16": "is fused_opt_states_bf16, which needs a",
    "--checkpoint.folder a\0b": "it must not contain a NUL",
}


@pytest.mark.parametrize(("overrides", "message"), WRONG.items())
def test_a_mistake_is_one_sentence(overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        load_run(DEBUG, overrides.split(), world_size=1)
    assert "\n" not in str(error.value)


WRONG_ATTENTION = {
    "--model.mixer mixing": "'standard' mixes by attention and model.mixer = 'mixing'",
    "--model.freeze qq": "unknown part in model.freeze 'qq'",
    "--optimizer.lr -1": "optimizer.lr is -1: it must be above 0",
    "--lr_scheduler.warmup_steps -1": "warmup_steps is -1: it must be at least 0",
    "--model.mixing.seed 1": "only for the mixing mixer",
    "--parallelism.tensor_parallel_degree 8": "tensor_parallel_degree = 8 does not divide",
    "--parallelism.pipeline_parallel_degree 2 --model.tied true": "cannot split a tied model",
    "--parallelism.context_parallel_degree 2": "context parallelism needs model.attention",
    "--model.heads 128": "is odd: rotary embeddings need an even head width",
    "--model.kv_heads 3": "model.kv_heads = 3 does not divide model.heads = 4",
}


@pytest.mark.parametrize(("overrides", "message"), WRONG_ATTENTION.items())
def test_a_mistake_with_attention(overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_run(STANDARD, overrides.split(), world_size=8 if "parallelism" in overrides else 1)


@pytest.mark.parametrize(
    ("table", "message"),
    {
        'mixer = "mixing"\nfreeze = ["qk"]': "the mixing mixer has no queries and keys",
        'freeze = ["attention"]': "unknown part in model.freeze 'attention'",
        'mixer = "conv"': "unknown model.mixer 'conv'",
        'variant = "mixit"\n[model.mixing]\nseed = 9223372036854775808': "model.mixing.seed is 92",
        'freeze = ["qk", "v", "o", "mlp", "norm", "embedding", "head"]': "nothing is left to train",
        "width = 128\nwidth = 64": "is not valid TOML",
    }.items(),
)
def test_a_wrong_model_section(tmp_path: Path, table: str, message: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f"[model]\n{table}\n")
    with pytest.raises(ConfigError, match=message):
        load_run(str(file), [], world_size=1)


WRONG_GROUPS = {
    'parts = "qk@9"\nlr_factor = 0.1': "says @9, but the layers are 0 to 3",
    'parts = "matrix"\nlr_factor = 0.1': "matches nothing: the layers there .attention. have no",
    'parts = "qk"\nlr_facto = 0.1': "unknown key 'optimizer.groups.lr_facto' .*groups.lr_factor",
    'parts = "qk"\nlr_factor = 0.0': "optimizer.groups.lr_factor is 0.0: it must be above 0",
    'parts = "qk"\nweight_decay = -1.0': "optimizer.groups.weight_decay is -1.0",
    'parts = "qk"\nfreeze_until = 60': "never thaw, because freeze_until = 60 and the last step is",
    'parts = "qk"\nfreeze_after = 99': "never freeze, because freeze_after = 99 and the last step",
    'parts = "qk"\nfreeze_until = 0': "optimizer.groups.freeze_until is 0: it must be",
    'parts = "qk"\nfreeze_until = 9\nfreeze_after = 9': "would never be trained, because freeze_u",
    'parts = "qk"': "changes nothing: give it lr_factor, weight_decay, freeze_until or",
    "lr_factor = 0.1": "optimizer.groups.parts is missing",
    'parts = ["qk"]\nlr_factor = 0.1': "optimizer.groups.parts in .* is ..qk..: expected",
    'parts = "qk"\nlr_factor = 0.1\n[[optimizer.groups]]\nparts = "@0"\nlr_factor = 2.0': (
        "optimizer.groups names qk@0 in two groups: leave it out of one"
    ),
    'parts = "@0-3 norm embedding head"\nfreeze_until = 2': "nothing to train in step 1",
}


@pytest.mark.parametrize(("table", "message"), WRONG_GROUPS.items())
def test_a_wrong_group_is_one_sentence(tmp_path: Path, table: str, message: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        '[model]\nvariant = "standard"\n[training]\nsteps = 60\n'
        f"[optimizer]\nlr = 0.1\n[[optimizer.groups]]\n{table}\n"
    )
    with pytest.raises(ConfigError, match=message) as error:
        load_run(str(file), [], world_size=1)
    assert "\n" not in str(error.value)


def test_groups_by_the_command_line_and_in_two_stages() -> None:
    groups = ["--optimizer.groups", '[{parts = "head", freeze_until = 5, lr_factor = 0.1}]']
    run = load_run(STANDARD, groups, world_size=1)
    assert [group.optimizer_kwargs["lr"] for group in run.optimizer.param_groups] == [2e-4, 2e-3]
    assert [phase.after for phase in run.optimizer.phases] == [0, 5]
    assert run.optimizer.groups == ["parts = 'head', lr_factor = 0.1, freeze_until = 5"]
    with pytest.raises(ConfigError, match=r"optimizer.groups in .* is 3: it must be tables"):
        load_run(STANDARD, ["--optimizer.groups", "3"], world_size=1)
    late = [*groups, "--training.steps", "4"]
    with pytest.raises(ConfigError, match="the last step is 4"):
        load_run(STANDARD, late, world_size=1)
    # A run that is to be continued is as long as its schedule.
    load_run(STANDARD, [*late, "--lr_scheduler.total_steps", "60"], world_size=1)
    stages = ["--parallelism.pipeline_parallel_degree", "2"]
    frozen = '[{parts = "@upper norm head", freeze_until = 5}]'
    with pytest.raises(ConfigError, match="pipeline stage 1 would have nothing to train, because"):
        load_run(STANDARD, ["--optimizer.groups", frozen, *stages], world_size=2)
    only = '[{parts = "@0-3 embedding", freeze_until = 5}]'
    with pytest.raises(ConfigError, match="num_chunks must be 1 if only the head"):
        words = ["--model.freeze", "norm", "--loss.num_chunks", "2"]
        load_run(STANDARD, ["--optimizer.groups", only, *words], world_size=1)


def test_more_ranks_than_the_batch_allows() -> None:
    with pytest.raises(ConfigError, match=r"global_batch_size = 8 cannot be divided among 3"):
        load_run(DEBUG, [], world_size=3)
    local = "--training.local_batch_size"
    with pytest.raises(
        ConfigError,
        match=rf"8 is not a multiple of {local[2:]} = 8 times 2.*: {local} 4 divides it",
    ):
        load_run(DEBUG, [local, "8"], world_size=2)
    load_run(DEBUG, [local, "4"], world_size=2)
    with pytest.raises(ConfigError, match=r"= 8 times 3.*: choose a multiple, or fewer ranks"):
        load_run(DEBUG, [local, "8"], world_size=3)


def test_a_missing_file() -> None:
    with pytest.raises(ConfigError, match=r"there is no config file 'nope.toml'"):
        load_run("nope.toml", [], world_size=1)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("")
    with pytest.raises(ConfigError, match=r"model.variant is missing"):
        load_run(str(tmp_path / "run.toml"), [], world_size=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_config_for_gpus_on_a_machine_without() -> None:
    file = str(shipped_configs()["8b_fineweb_edu"])
    said = r'is for GPUs \(device = "gpu"\) and there is none here: .* by (--device cpu .*)'
    with pytest.raises(ConfigError, match=said) as error:
        load_run(file, [], world_size=1)
    advice = re.search(said, str(error.value))[1].split()
    run = load_run(file, [*advice, "--compile.enable", "false"], world_size=1)
    assert run.model_spec.flavor == "debug" and run.training.local_batch_size == 4
    assert advice[-2:] == ["--checkpoint.async_mode", "async"]  # bench, which saves nothing, has no
    with pytest.raises(ConfigError, match=re.escape(" ".join(advice[:-2]))):  # need of it
        read_point(read_arguments([file]), 1)
    with pytest.raises(ConfigError, match=r"model.attention = 'flex' needs a GPU"):
        load_run(STANDARD, ["--model.attention", "flex"], world_size=1)


@pytest.mark.parametrize(
    ("gib", "overrides", "form"),
    [
        (80, [], "stored"),  # 4.25 GiB of packed triangles, and more than 40 GiB are left
        (80, ["--model.seq_len", "16384"], "generated"),
        (40, [], "generated"),  # the rest of the run takes 33 GiB
        (40, ["--model.mixing.storage", "stored"], "stored"),
    ],
)
def test_matrices_are_stored_where_the_run_leaves_room(
    monkeypatch: pytest.MonkeyPatch, gib: int, overrides: list[str], form: str
) -> None:
    gpu = dataclasses.replace(GPUS["H100"], memory=gib * 2**30)
    monkeypatch.setitem(GPUS, "H100", gpu)
    path = str(shipped_configs()["8b_fineweb_edu"])
    plan = plan_run(path, overrides, world_size=64, on_gpus=True)
    assert plan.model.layers[0].attention.inner_attention.form == form


@pytest.mark.parametrize(("tokens", "vocab"), [(257, 320), (320, 320), (321, 384)])
def test_the_vocabulary_is_that_of_a_prepared_folder(
    tmp_path: Path, tokens: int, vocab: int
) -> None:
    corpus = write_jsonl(tmp_path / "a.jsonl", stories(60))
    prepare(find_corpus(str(corpus)), tokens, tmp_path / "out", workers=1)
    words = ["--data.path", str(tmp_path / "out"), "--training.seq_len", "16"]
    assert load_run(DEBUG, words, world_size=1).model_spec.model.vocab_size == vocab
    named = load_run(DEBUG, [*words, "--model.vocab", "500"], world_size=1)
    assert named.model_spec.model.vocab_size == 500
