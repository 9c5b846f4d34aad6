"""Validation, against sums over documents that are put through the model one by one."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.config import ParallelismConfig

from mixit_titan.config.run import load_run
from mixit_titan.config.shipped import shipped_configs
from mixit_titan.data.shards import open_split
from mixit_titan.data.tokenizers import ByteTokenizer
from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.runtime.metrics import read_metrics
from mixit_titan.runtime.validation import HeldOutValidator

from .conftest import SMALL, Runs

L, STEPS = 32, 6
ENABLED = [
    *("--validator.enable", "true", "--validator.freq", "4", "--validator.rows", "-1"),
    *("--training.global_batch_size", "6", "--training.steps", str(STEPS)),
]
JOBS = {
    "mixit": ("mixit", ENABLED),
    "frozen_qk": ("frozen_qk", [*ENABLED, "--data.packing", "documents"]),
    "some_rows": ("standard", [*ENABLED, "--validator.rows", "7", "--data.workers", "1"]),
}


@pytest.fixture(scope="module")
def validated(runs: Runs) -> Runs:
    for ranks in (1, 3):
        runs.train(ranks, {f"{name}_validated_{ranks}": job for name, job in JOBS.items()})
    return runs


def validations(runs: Runs, name: str) -> list[dict]:
    lines = read_metrics(runs.folder(name) / "metrics.jsonl")
    return [line for line in lines if "validation_loss" in line]


@pytest.mark.parametrize("name", JOBS)
def test_three_ranks_validate_as_one(validated: Runs, name: str) -> None:
    one, three = (validations(validated, f"{name}_validated_{ranks}") for ranks in (1, 3))
    assert [line["step"] for line in one] == [0, 4, 6]
    for ours, expected in zip(three, one, strict=True):
        assert ours["step"] == expected["step"]
        assert ours["validation_tokens"] == expected["validation_tokens"]
        # The same weights at step 0. Later they differ by what training on other ranks rounds.
        tolerance = 1e-4 if ours["step"] else 1e-5
        for key in ("validation_loss", "bits_per_byte"):
            assert math.isclose(ours[key], expected[key], rel_tol=tolerance)
    last = [
        [line["loss"] for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]
        for folder in (validated.folder(f"{name}_validated_{ranks}") for ranks in (1, 3))
    ]
    torch.testing.assert_close(*map(torch.tensor, last), atol=1e-4, rtol=0)


def pieces(runs: Runs, packing: str) -> list[list[int]]:
    """What each token may see, by plain lists: documents, cut where a row of L inputs ends."""
    split = open_split(runs.data, "validation")
    ends = [i + 1 for i, token in enumerate(split.read(0, split.tokens)) if token == 256]
    tokens = split.read(0, split.tokens).tolist()
    documents = [tokens[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    if packing == "documents":
        return [document[: L + 1] for document in documents]
    found, at = [], 0
    for document in documents:
        start = 0
        while start < len(document) - 1:
            stop = min(len(document), start + L - at % L + 1)  # inputs up to the end of the row
            found.append(document[start:stop])
            at += stop - 1 - start
            start = stop - 1
        at += 1  # the end-of-text id is an input too, though it predicts nothing
    return found


@pytest.mark.parametrize(("name", "packing"), [("mixit", "stream"), ("frozen_qk", "documents")])
@pytest.mark.parametrize("step", [0, STEPS])
def test_validation_is_the_sum_by_hand(validated: Runs, name: str, packing: str, step: int) -> None:
    described: MixitLlama.Config = load_run(
        str(shipped_configs()["debug_standard"]), ["--model.variant", name, *SMALL], world_size=1
    ).model_spec.model
    model = llama_config(described.shape, described.stack, described.recipe).build()
    model.init_states()
    if step:
        folder = validated.folder(f"{name}_validated_1") / "checkpoint" / f"step-{step}"
        dcp.load(model.state_dict(), checkpoint_id=str(folder), no_dist=True)
    nats = tokens = size = 0
    for piece in pieces(validated, packing):
        with torch.no_grad():
            logits = model(torch.tensor([piece[:-1]])).double() if len(piece) > 1 else None
        for place, label in enumerate(piece[1:]):
            nats -= float(logits[0, place].log_softmax(-1)[label])
            tokens += 1
            size += label != 256
    line = next(v for v in validations(validated, f"{name}_validated_1") if v["step"] == step)
    assert line["validation_tokens"] == tokens
    assert math.isclose(line["validation_loss"], nats / tokens, rel_tol=1e-5)
    assert math.isclose(line["perplexity"], math.exp(nats / tokens), rel_tol=1e-4)
    assert math.isclose(line["bits_per_byte"], nats / math.log(2) / size, rel_tol=1e-5)


class Schedule:
    """Stands in for torch's pipeline schedules: the last stage's side of them."""

    def __init__(self, model: torch.nn.Module, loss: CrossEntropyLoss) -> None:
        self.model, self.loss = model, loss

    def eval(self, arg_mbs: list, kwarg_mbs: list, target_mbs: list, losses: list) -> None:
        for arguments, extra, target in zip(arg_mbs, kwarg_mbs, target_mbs, strict=True):
            assert len(target) == 2
            losses.append(self.loss(self.model(*arguments, **extra), target)[0])


def test_a_pipeline_validates_in_microbatches(runs: Runs) -> None:
    """torchtitan 0.3.0's pipelines need torch 2.15, so that a stand-in has to do here."""
    run = load_run(
        str(shipped_configs()["debug_standard"]),
        [*SMALL, "--data.path", str(runs.data)],
        world_size=1,
    )
    model = run.model_spec.model.build()
    model.init_states()
    logged: list[dict] = []
    metrics = SimpleNamespace(
        ntokens_since_last_log=0, log_validation=lambda **values: logged.append(values)
    )
    loss = CrossEntropyLoss(CrossEntropyLoss.Config())
    for pipeline in (False, True):
        validator = HeldOutValidator(
            run.validator,
            parallelism=ParallelismConfig(pipeline_parallel_microbatch_size=2),
            dp_world_size=1,
            dp_rank=0,
            tokenizer=ByteTokenizer(),
            parallel_dims=SimpleNamespace(
                pp_enabled=pipeline, cp_enabled=False, get_optional_mesh=lambda name: None
            ),
            loss_fn=loss,
            validation_context=torch.no_grad,
            metrics_processor=metrics,
            seq_len=L,
            local_batch_size=8,
            pp_schedule=Schedule(model, loss),
            pp_has_first_stage=True,
            pp_has_last_stage=True,
        )
        validator.agreement = SimpleNamespace(check=lambda: None)
        validator.validate([model], 3)
    plain, piped = logged
    assert math.isclose(plain["loss"], piped["loss"], rel_tol=1e-6)
    assert plain["extra_metrics"]["validation_metrics/tokens"] > 500
    size = "validation_metrics/bits_per_byte"
    assert math.isclose(plain["extra_metrics"][size], piped["extra_metrics"][size], rel_tol=1e-6)
