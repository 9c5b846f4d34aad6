"""Training stacks of several kinds of layers: the losses do not depend on how the run is split."""

from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from mixit_titan.export.command import ExportArguments, run_export
from mixit_titan.export.modeling_mixit import Mixit
from mixit_titan.generation.generate import generate
from mixit_titan.generation.sampling import Sampling
from mixit_titan.runtime.trained import load_trained

from .conftest import STEPS, Runs
from .test_parallelism import PIPELINE, SKIP, TENSOR
from .test_training import COMPILED, assert_same

HYBRID = "mixit frozen_qk"
WINDOW = ["--model.window", "6"]
UNTIL_10 = ["--training.steps", "10", "--lr_scheduler.total_steps", str(STEPS)]
EQUAL = {
    "equal_mixit": ("mixing mixing", [], "mixit"),
    "equal_random": ("attention-freeze-qk-v-o-mlp-norm*2", [], "random"),
    "equal_frozen_qk": ("frozen_qk@0 frozen_qk@1", [], "frozen_qk"),
    "equal_frozen_mlp": ("frozen_mlp@lower attention-freeze-mlp@upper", [], "frozen_mlp"),
    "equal_standard": ("attention@last", [], "standard"),
}
MIXERS = ["learned window", "embedding linear", "uniform learned-freeze-matrix"]
SPLIT = {
    "hybrid_2": [],
    "hybrid_tensor": [*TENSOR, *SKIP],
    "hybrid_pipeline": [*PIPELINE, *SKIP],
    "hybrid_resident": ["--fsdp.frozen", "resident", "--activation_checkpoint.mode", "selective"],
    "hybrid_full": [*COMPILED, "--activation_checkpoint.mode", "full"],
}


@pytest.fixture(scope="module")
def hybrids(runs: Runs) -> Runs:
    runs.train(
        1,
        {
            "hybrid": (HYBRID, []),
            "hybrid_compiled": (HYBRID, COMPILED),
            "hybrid_resumed_on_2": (HYBRID, UNTIL_10),
            **{name: (stack, own) for name, (stack, own, _) in EQUAL.items()},
        },
    )
    resumed = {"hybrid_resumed": (HYBRID, UNTIL_10)}
    on_2 = {"hybrid_resumed_on_2": (HYBRID, [])}
    runs.train(2, {name: (HYBRID, own) for name, own in SPLIT.items()} | resumed | on_2)
    runs.train(1, {"hybrid_resumed": (HYBRID, [])})
    return runs


@pytest.mark.parametrize("name", EQUAL)
def test_equal_pairs_give_the_losses_of_the_variant_bit_for_bit(hybrids: Runs, name: str) -> None:
    assert hybrids.losses(name) == hybrids.losses(EQUAL[name][2])


OTHERS = ["hybrid_compiled", "hybrid_resumed", "hybrid_resumed_on_2"]


@pytest.mark.parametrize("name", [*SPLIT, *OTHERS])
def test_the_losses_are_those_of_one_rank(hybrids: Runs, name: str) -> None:
    assert_same(hybrids.losses(name), hybrids.losses("hybrid"), 1e-4)
    losses = hybrids.losses(name)
    assert losses[-1] < losses[0] - 0.5


def test_every_other_mixer_is_split_compiled_and_resumed(runs: Runs) -> None:
    alone = {f"mixers_{n}": (stack, WINDOW) for n, stack in enumerate(MIXERS)}
    compiled = {"mixers_0_compiled": (MIXERS[0], [*WINDOW, *COMPILED])}
    runs.train(1, alone | compiled)
    split = {f"{name}_2": (stack, WINDOW) for name, (stack, _) in alone.items()}
    split |= {f"{n}_tensor": (stack, [*WINDOW, *TENSOR]) for n, (stack, _) in alone.items()}
    split["mixers_0_resumed"] = (MIXERS[0], [*WINDOW, *UNTIL_10])
    runs.train(2, split)
    runs.train(1, {"mixers_0_resumed": (MIXERS[0], WINDOW)})
    for name in [*compiled, *split]:
        assert_same(runs.losses(name), runs.losses(name[:8]), 1e-4)
    assert load_trained(runs.folder("mixers_1_2")).model.config.stack.name == MIXERS[1]


def test_optimizer_state_is_there_for_what_a_layer_trains(hybrids: Runs) -> None:
    checkpoint = str(hybrids.folder("hybrid_2") / "checkpoint" / f"step-{STEPS}")
    keys = dcp.FileSystemReader(checkpoint).read_metadata().state_dict_metadata.keys()
    states = {key.split(".state.")[1].removesuffix(".exp_avg") for key in keys if "exp_avg" in key}
    weights = {key for key in keys if key.startswith(("layers.", "tok_", "norm.", "lm_head."))}
    frozen = {f"layers.1.attention.qkv_linear.w{k}.weight" for k in "qk"}
    assert frozen < weights and not any(".wq." in key for key in weights - frozen)
    assert {state for state in states if not state.endswith("_sq")} == weights - frozen


def test_the_model_comes_back_and_generates_with_and_without_a_cache(hybrids: Runs) -> None:
    trained = load_trained(hybrids.folder("hybrid_2"))
    assert trained.model.config.stack.name == HYBRID
    found = [
        [
            list(
                generate(
                    trained.model,
                    [list(b"def "), list(b"x")],
                    count=20,
                    vocabulary=257,
                    sampling=sampling,
                    end_of_text=None,
                    cache=cache,
                )
            )
            for cache in (True, False)
        ]
        for sampling in (
            Sampling(temperature=0, top_p=1, seed=0),
            Sampling(temperature=1, top_p=1, seed=3),
        )
    ]
    assert found[0][0] == found[0][1] and found[1][0] == found[1][1] != found[0][0]


def test_another_stack_refuses_the_checkpoint(hybrids: Runs) -> None:
    weights = str(hybrids.folder("hybrid") / "checkpoint" / f"step-{STEPS}")
    more = ["--training.steps", "22"]
    refused = {
        "frozen_qk mixit": r"mixer is 'mixing attention' there and 'attention mixing' here",
        "mixit standard": r"frozen is \['qk'\] there and \[\] here; stack is 'mixing attention-fr",
    }
    for stack, said in refused.items():
        with pytest.raises(AssertionError, match=said):  # of a rank
            hybrids.train(1, {"hybrid": (stack, more)})
    begun = ["--training.steps", "2", "--checkpoint.initial_load_path", weights]
    hybrids.train(1, {"hybrid_begun": ("mixit standard", begun)})  # other parts may be trained
    assert hybrids.losses("hybrid_begun")[0] < hybrids.losses("hybrid")[0] - 0.5


def test_a_stack_of_two_mixers_is_exported(
    hybrids: Runs, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run_export(ExportArguments(run_dir=hybrids.folder("hybrid"), out=tmp_path / "out"))
    assert f'from_pretrained("{tmp_path}/out", trust_remote_code=True)' in capsys.readouterr().out
    trained, tokens = load_trained(hybrids.folder("hybrid")), torch.arange(32).view(2, 16)
    theirs = Mixit.load(tmp_path / "out")(tokens)
    torch.testing.assert_close(theirs, trained.model(tokens), atol=1e-5, rtol=1e-5)
