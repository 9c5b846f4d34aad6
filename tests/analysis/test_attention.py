"""Heads are found by what they do: a transformer whose weights are set by hand has the circuit."""

import math
from collections.abc import Callable

import pytest
import torch

from mixit_titan.analysis.attention import attention, stands_out, targets
from mixit_titan.analysis.hooks import attention_maps
from mixit_titan.analysis.sequences import Sequences, plain_sequences
from mixit_titan.model.llama import MixitLlama

WIDTH, HEADS, HEAD = 32, 2, 16
SHARP = 60.0
# A token at the start that does not come again, then every token twice.
TOKENS = [7, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


@pytest.fixture
def circuit(build: Callable[..., MixitLlama]) -> MixitLlama:
    """Layer 0, head 1 attends to the previous token and copies it to features 8 ... 15, beside the
    token's own one-hot in 0 ... 7. Layer 1, head 0 asks with the token for those whose previous
    token it was. All else attends to everything alike and adds nothing."""
    shape = {"width": WIDTH, "heads": HEADS, "vocab": 8, "bias": True, "rope_theta": 1e12}
    model = build("standard", **shape)
    for name, param in model.named_parameters():
        param.data.fill_(1.0 if "norm" in name else 0.0)
    model.tok_embeddings.weight[:, :8] = torch.eye(8)

    previous, head = model.layers["0"].attention, HEAD  # the first feature of head 1
    # Frequency 1 turns by one radian a position: q is ahead of k by that of one position.
    previous.qkv_linear.wq.bias[head] = SHARP * math.cos(1)
    previous.qkv_linear.wq.bias[head + HEAD // 2] = -SHARP * math.sin(1)
    previous.qkv_linear.wk.bias[head] = SHARP
    previous.qkv_linear.wv.weight[head : head + 8, :8] = torch.eye(8)
    # The norm before it has made a one-hot sqrt(32) large.
    previous.wo.weight[8:16, head : head + 8] = torch.eye(8) / math.sqrt(WIDTH)

    induction = model.layers["1"].attention
    slow = torch.tensor([4, 5, 6, 7, 12, 13, 14, 15])  # features that rotary hardly turns
    induction.qkv_linear.wq.weight[slow, torch.arange(8)] = SHARP**0.5
    induction.qkv_linear.wk.weight[slow, 8 + torch.arange(8)] = SHARP**0.5
    return model


def test_the_hand_made_circuit_is_found(circuit: MixitLlama) -> None:
    found = attention(circuit, plain_sequences(torch.tensor([TOKENS, TOKENS]), "tokens"))
    assert len(found["heads"]) == 4
    induction, previous = found["induction_head"], found["previous_head"]
    assert (induction["layer"], induction["head"]) == (1, 0)
    assert (previous["layer"], previous["head"]) == (0, 1)
    assert induction["score"] > 0.95 and previous["score"] > 0.95
    assert found["places"] == {"induction": 10, "previous": 20}
    # The idle heads attend to all alike: 1 / (i + 1) at position i.
    idle = found["heads"][0]
    assert (idle["layer"], idle["head"]) == (0, 0)
    alike = {
        "induction": sum(1 / (i + 1) for i in range(6, 11)) / 5,
        "previous": sum(1 / (i + 1) for i in range(1, 11)) / 10,
    }
    for kind, expected in alike.items():
        assert idle[kind] == pytest.approx(expected, abs=1e-5)
        assert found["uniform"][kind] == pytest.approx(expected, abs=1e-5)


def test_the_score_is_the_mean_mass_of_the_places(
    build: Callable[..., MixitLlama], tokens: torch.Tensor
) -> None:
    model = build("standard")
    lengths = torch.tensor([12, 3, 7, 12, 5])
    asked = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(2)) < 0.6
    tokens = tokens % 5  # so that they repeat
    sequences = Sequences(tokens_NL=tokens, lengths_N=lengths, asked_NL=asked, source="tokens")
    found = attention(model, sequences)
    maps = attention_maps(model, tokens)[1].double()
    mass, previous = [], []
    for n, row in enumerate(tokens.tolist()):
        for i in range(int(lengths[n])):
            if i > 0:
                previous.append(maps[n, 2, i, i - 1].item())
            earlier = [j for j in range(i) if row[j] == row[i]]
            if asked[n, i] and earlier and earlier[-1] + 1 != i:
                mass.append(maps[n, 2, i, earlier[-1] + 1].item())
    assert 5 < len(mass) == found["places"]["induction"]
    row = found["heads"][4 + 2]
    assert (row["layer"], row["head"]) == (1, 2)
    assert row["induction"] == pytest.approx(sum(mass) / len(mass), abs=1e-5)
    assert row["previous"] == pytest.approx(sum(previous) / len(previous), abs=1e-5)


def test_targets_of_a_sequence() -> None:
    word = [ord(letter) for letter in "abcaab"]
    found = targets(word, [True] * 6)
    # The first a of "caa" attends to b; the second would attend to itself; b to the c after the
    # first a.
    assert found["induction"] == [(3, 1), (5, 2)]
    assert found["previous"] == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]
    assert targets(word, [False] * 5 + [True])["induction"] == [(5, 2)]


def test_where_nothing_repeats_there_is_no_induction_head(
    build: Callable[..., MixitLlama],
) -> None:
    found = attention(build("standard"), plain_sequences(torch.arange(8).view(1, 8), "tokens"))
    assert found["induction_head"] is None and found["uniform"]["induction"] is None
    assert all(row["induction"] is None for row in found["heads"])
    assert found["previous_head"]["score"] > 0


@pytest.mark.parametrize(("score", "named"), [(0.21, True), (0.19, False)])
def test_a_head_bears_its_name_from_twice_the_uniform_baseline_on(
    score: float, named: bool
) -> None:
    found = {"induction_head": {"score": score}, "uniform": {"induction": 0.1}}
    assert stands_out(found, "induction") is named
    assert not stands_out({"induction_head": None, "uniform": {"induction": None}}, "induction")
