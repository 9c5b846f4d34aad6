"""Models of tasks: the paper's counts, the baselines, the pooled head, the presets."""

from pathlib import Path

import pytest
import torch

from mixit_titan.errors import ConfigError
from mixit_titan.model.stack import uniform
from mixit_titan.model.variants import VARIANTS
from mixit_titan.tasks.baselines import BASELINES
from mixit_titan.tasks.choice import chosen_values
from mixit_titan.tasks.models import (
    PooledClassifier,
    build_model,
    count,
    model_config,
    trained_parameters,
)
from mixit_titan.tasks.options import parse, preset_run
from mixit_titan.tasks.presets import PRESETS, preset_values
from mixit_titan.tasks.settings import Run, Settings
from mixit_titan.tasks.task import TASKS, task_class
from tests.tasks.conftest import make_run


@pytest.mark.parametrize(
    ("variant", "trainable"),
    {"standard": 790400, "frozen_mlp": 394880, "frozen_qk": 724352, "mixit": 724736}.items(),
)
def test_memorization_has_the_parameters_of_table_4(variant: str, trainable: int) -> None:
    words = f"--variant {variant} --width 128".split()
    run = parse(
        Run[task_class("memorization")],
        preset_run("memorization", "paper", words),
        "memorization",
        words,
    )
    assert count(trained_parameters(build_model(run))) == trainable


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("variant", [*VARIANTS, *BASELINES])
def test_a_preset_names_only_what_exists_and_makes_a_model(preset: str, variant: str) -> None:
    for name in TASKS:
        run = preset_run(name, preset, ["--variant", variant])
        named = preset_values(preset, name, variant)
        assert {key: run.described()[key] for key in named} == named
        assert run.settings.variant == variant
        config = model_config(run)
        if variant == "lstm":
            assert config is None
        else:
            assert config.stack == uniform("linear") if variant == "linear" else VARIANTS[variant]
            assert (config.dim, len(config.layers)) == (run.settings.width, run.settings.layers)
            assert config.vocab_size == run.task.token_count


def test_paper_presets_are_table_9() -> None:
    table = {
        "addition": (8, 512, 64, 1e-3, 128),
        "dyck": (4, 512, 64, 1e-3, 512),
        "modular": (2, 512, 32, 1e-3, 256),
        "retrieval": (2, 1024, 4, 1e-4, 1024),
        "hop": (5, 512, 8, 1e-4, 128),
        "memorization": (2, 1024, 4, 1e-3, 256),
        "yelp": (4, 1024, 16, 5e-4, 256),
    }
    for name, row in table.items():
        settings = preset_run(name, "paper", []).settings
        columns = ("layers", "width", "heads", "lr", "batch")
        assert tuple(getattr(settings, column) for column in columns) == row


def test_the_paper_presets_of_mqar_and_mad_are_those_of_their_own_papers() -> None:
    """64 epochs of 100,000 examples in batches of 512, and 200 epochs of 12,800 in batches of 128;
    memorization has 256 examples. Difficulties: the first of Figure 2, and MAD's baselines."""
    run = preset_run("mqar", "paper", [])
    assert (run.task.vocab, run.task.length, run.task.pairs) == (8192, 64, 4)
    assert run.task.power_a == 0.01 and not run.task.random_filler
    assert run.settings.steps == 64 * 100_000 // 512
    baselines = {
        "mad_recall": {"vocab": 16, "length": 128},
        "mad_fuzzy_recall": {"vocab": 16, "length": 128, "key_tokens": 3, "value_tokens": 3},
        "mad_noisy_recall": {"vocab": 32, "length": 128, "noise_vocab": 16, "noise_share": 0.2},
        "mad_selective_copying": {"vocab": 16, "length": 256, "copies": 16},
        "mad_compression": {"vocab": 16, "length": 32},
        "mad_memorization": {"vocab": 256, "length": 32},
    }
    for name, difficulty in baselines.items():
        run = preset_run(name, "paper", [])
        assert vars(run.task) == difficulty
        train = 256 if name == "mad_memorization" else 12_800
        assert (run.settings.train, run.settings.steps) == (train, 200 * train // 128)
        assert (run.settings.width, run.settings.lr, run.settings.test) == (128, 5e-4, 1280)


def test_random_trains_tokens_positions_and_unembedding_and_nothing_else() -> None:
    run = make_run("addition", "--variant random --digits 2")
    model = build_model(run)
    width, tokens, positions = run.settings.width, run.task.token_count, run.task.positions
    trained = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {
        "tok_embeddings.weight": (tokens, width),
        "tok_embeddings.position_weight": (positions, width),
        "lm_head.weight": (tokens, width),
    }


def test_only_random_adds_positions_to_attention() -> None:
    for variant in ("standard", "frozen_qk", "frozen_mlp"):
        model = build_model(make_run("addition", f"--variant {variant}"))
        assert not hasattr(model.tok_embeddings, "position_weight")


@pytest.mark.parametrize("variant", [*VARIANTS, *BASELINES])
def test_no_model_sees_the_tokens_that_follow(variant: str) -> None:
    run = make_run("retrieval", f"--pairs 4 --vocab 16 --variant {variant}")
    model = build_model(run)
    tokens = torch.randint(0, 16, (3, 9), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 16
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert (before[:, 5:] - after[:, 5:]).abs().amax(-1).min() > 0  # and all see those before


def test_yelp_may_look_ahead(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("label,text\n" + "0,a\n1,b\n" * 9)
    tokens = torch.tensor([[2, 3, 2, 3]])
    changed = torch.tensor([[2, 3, 2, 2]])
    for option, same in (("--causal", True), ("--no-causal", False)):
        words = f"--variant mixit --csv {tmp_path / 'reviews.csv'} --length 4 --vocab 4 {option}"
        body = build_model(make_run("yelp", words)).body
        assert torch.equal(body(tokens)[:, :3], body(changed)[:, :3]) == same


def test_padding_does_not_count_in_the_pooled_mean() -> None:
    body = torch.nn.Embedding(5, 6)
    model = PooledClassifier(body, 6, 2, padding=0)
    torch.nn.init.normal_(model.classifier.weight)
    short, padded = torch.tensor([[3, 4]]), torch.tensor([[3, 4, 0, 0]])
    expected = body.weight[[3, 4]].mean(0) @ model.classifier.weight.T
    for tokens in (short, padded):
        torch.testing.assert_close(model(tokens)[0, 0], expected)
    model.padding = None  # then token 0 is a word like the others
    expected = body.weight[[3, 4, 0, 0]].mean(0) @ model.classifier.weight.T
    torch.testing.assert_close(model(padded)[0, 0], expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"variant": "mixit standard"},
            "'mixit standard' is a stack of pairs: name it with --stack",
        ),
        ({"variant": "mixti"}, "unknown variant 'mixti': did you mean 'mixit'"),
        ({"variant": "standard", "recipe": "paper"}, "--recipe applies only to mixing layers"),
        ({"variant": "standard", "causal": False}, "--no-causal applies only to mixing layers"),
        ({"variant": "standard", "noise": "sign"}, "--noise applies only to mixing layers"),
        ({"variant": "mixit", "recipe": "papr"}, "did you mean 'paper'"),
        ({"variant": "lstm", "freeze": ("mlp",)}, "'lstm' is trained completely"),
        ({"variant": "mixit", "freeze": ("qk",)}, "has no queries and keys"),
        ({"variant": "lstm", "stack": "mixit"}, "--stack: 'lstm' is trained completely"),
        ({"variant": "mixit", "stack": "standard"}, r"and so does model.variant = 'mixit'"),
        ({"variant": "mixit", "mixer": "attention"}, "mixes by mixing and model.mixer = 'attent"),
        ({"mixer": "conv"}, "unknown model.mixer 'conv'"),
        ({"stack": "standard", "recipe": "paper"}, "--recipe applies only to mixing layers"),
        ({"stack": "mixit*3"}, "is 3 layers, which do not fill model.layers = 2"),
        ({"lr": 0.0}, "--lr is 0.0: it must be above 0"),
        ({"seed": -1}, "--seed is -1"),
    ],
)
def test_a_knob_that_is_not_there_is_one_sentence(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(**settings).check()


NAMED = {
    "": "standard",
    "--variant mixit": "mixit",
    "--freeze v": "attention-freeze-v",
    "--variant random --freeze qk v": "attention-freeze-qk-v",
    "--mixer mixing": "mixit",
    "--mixer mixing --freeze v": "mixing-freeze-v",
    "--stack mixit": "mixit",
    "--stack frozen_qk@last": "standard frozen_qk",
    "--stack frozen_qk@last --freeze head": "standard frozen_qk freeze-head",
    "--variant lstm": "lstm",
}


@pytest.mark.parametrize("words", NAMED)
def test_a_run_says_what_was_trained(words: str) -> None:
    run = make_run("addition", f"{words} --layers 2")
    run.check()
    assert run.settings.name == NAMED[words]
    config = model_config(run)
    assert config is None or config.stack.name == NAMED[words]


def test_a_stack_of_one_pair_is_the_run_of_the_variant() -> None:
    """With its own settings of a preset, and the learned positions of `random`."""
    for variant in VARIANTS:
        ours, theirs = (make_run("addition", f"--{key} {variant}") for key in ("stack", "variant"))
        assert model_config(ours) == model_config(theirs)
        assert ours.settings.heads == theirs.settings.heads


@pytest.mark.parametrize("task", ["retrieval", "addition"])
def test_other_words_for_a_variant_are_its_run(task: str) -> None:
    """Also its folder, and what was chosen for it: the words of a test on two layers."""
    same = {
        "mixit": ["--mixer mixing", "--stack mixit", "--stack 'mixit mixing'", "--stack mixit@0-1"],
        "standard": ["--mixer attention", "--stack 'standard*2'"],
        "frozen_qk": ["--stack attention-freeze-qk", "--stack 'frozen_qk frozen_qk'"],
        "linear": ["--mixer linear", "--stack linear"],
    }
    for variant, others in same.items():
        theirs = make_run(task, f"--variant {variant} --layers 2")
        for words in others:
            ours = make_run(task, f"{words} --layers 2").named()
            assert ours == theirs and ours.hash == theirs.hash, words
    chosen = chosen_values(task, "mixit")
    preset = preset_run(task, "cpu", ["--mixer", "mixing"])
    assert chosen and chosen.items() <= preset.described().items()
    for words in ("--mixer uniform", "--stack mixit@0", "--stack frozen_qk --freeze head"):
        run = make_run(task, f"{words} --layers 2")
        assert run.named() == run


def test_a_run_without_a_stack_is_described_as_before_there_were_any() -> None:
    assert not {"stack", "mixer"} & make_run("addition", "--freeze v").described().keys()
    described = make_run("addition", "--stack mixit@0").described()
    assert described["stack"] == "mixit@0" and "mixer" not in described


def test_noise_goes_to_the_recipe_and_is_said_where_it_is_not_gaussian() -> None:
    """Runs of before it was a choice are described as they were."""
    gaussian, sign = (make_run("addition", f"--variant mixit {n}") for n in ("", "--noise sign"))
    assert "noise" not in gaussian.described() and sign.described()["noise"] == "sign"
    assert model_config(sign).recipe.noise == "sign" and gaussian.hash != sign.hash


def test_the_recipe_is_that_of_the_authors_tasks_unless_told_otherwise() -> None:
    for run in (
        preset_run("addition", "paper", ["--variant", "mixit"]),
        Run(task=task_class("addition")(), settings=Settings(variant="mixit")),
    ):
        recipe = model_config(run).recipe
        assert recipe.sink_head and recipe.residual == pytest.approx(0.5**0.5)
    assert not model_config(make_run("addition", "--variant mixit --recipe paper")).recipe.sink_head


def test_the_size_of_the_mixing_matrices_takes_the_place_of_the_recipes() -> None:
    """1/sqrt(15) for the 15 positions of four digits."""
    for words, std in {
        "": 15**-0.5,
        "--std 0.5": 0.5,
        "--recipe official --std 0.25": 0.25,
    }.items():
        config = model_config(make_run("addition", f"--digits 4 --variant mixit {words}"))
        spec = config.layers[0].attention.inner_attention.spec
        assert spec.std_low == spec.std_high == pytest.approx(std)
    with pytest.raises(ConfigError, match="--std applies only to mixing layers"):
        Settings(std=0.5).check()
