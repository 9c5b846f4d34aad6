"""Stacks: how they are written, which are the same, and what a model makes of them."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

from mixit_titan.errors import ConfigError
from mixit_titan.model.accounting import count, weights
from mixit_titan.model.build import llama_config
from mixit_titan.model.decoding import Decoder
from mixit_titan.model.freezing import freeze
from mixit_titan.model.identity import identity, saved_stack
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.pairs import PAIRS
from mixit_titan.model.recipes import RECIPES
from mixit_titan.model.stack import Stack, read_stack, uniform
from mixit_titan.model.variants import VARIANTS, find_stack

from .conftest import TINY, build

M, S, Q, R = (PAIRS[name] for name in ("mixit", "standard", "frozen_qk", "random"))
WRITTEN = {  # of a model of 4 layers
    "mixit": [M, M, M, M],
    "mixit*4": [M, M, M, M],
    "mixit*3 standard": [M, M, M, S],
    "mixit standard": [M, S, M, S],
    "mixing attention": [M, S, M, S],
    "standard mixit*2 attention-freeze-qk": [S, M, M, Q],
    "frozen_qk@upper": [S, S, Q, Q],
    "frozen_qk@lower": [Q, Q, S, S],
    "mixit standard@last": [M, M, M, S],
    "mixit standard@first": [S, M, M, M],
    "mixit standard@1-2": [M, S, S, M],
    "mixit standard@0 frozen_qk@3": [S, M, M, Q],
    "mixit standard random@2": [M, S, R, S],
    "  random@0-3 ": [R, R, R, R],
}
NAMES = {
    "mixit*4": "mixit",
    "mixit standard": "mixit standard",
    "mixing attention mixing attention": "mixit standard",
    "attention-freeze-mlp-qk*3 standard": "attention-freeze-qk-mlp*3 standard",
    "frozen_qk@upper": "standard*2 frozen_qk*2",
    "attention-freeze-v": "attention-freeze-v",
    "random@0-3": "random",
}
DEEP = dataclasses.replace(TINY, layers=4)


@pytest.mark.parametrize("text", WRITTEN)
def test_a_stack_is_read_as_it_is_written(text: str) -> None:
    assert list(read_stack(text, 4).fill(4)) == WRITTEN[text]


@pytest.mark.parametrize("text", NAMES)
def test_its_name_is_the_shortest_that_reads_the_same(text: str) -> None:
    stack = read_stack(text, 4)
    assert stack.name == NAMES[text] and read_stack(stack.name, 4) == stack
    assert read_stack(stack.structure, 4) == stack


def test_a_stack_of_equal_pairs_is_the_variant() -> None:
    for name, variant in VARIANTS.items():
        assert read_stack(f"{name} {name}", 4) == read_stack(name, 4) == variant
        assert variant.name == name


def test_what_is_frozen_of_the_model_as_a_whole() -> None:
    stack = find_stack(4, stack="mixit*3 standard", freeze=["head", "embedding"])
    assert stack.name == "mixit*3 standard freeze-embedding-head"
    assert stack.freezes("head") and stack.freezes("embedding") and not stack.freezes("norm")
    alone = uniform("attention", ("embedding", "v"))
    assert alone.name == "attention-freeze-v-embedding"


def test_the_last_norm_is_frozen_with_those_of_all_layers() -> None:
    assert VARIANTS["random"].freezes("norm")
    mixed = read_stack("random standard", 4)
    assert mixed.freezes("norm", 0) and not mixed.freezes("norm", 1) and not mixed.freezes("norm")


def test_a_part_of_a_path_has_no_stars_and_spaces_and_is_not_long() -> None:
    assert read_stack("mixit*3 standard", 4).folder == "mixitx3_standard"
    long = " ".join(["mixit", "standard", "frozen_qk", "mixit*2"] * 13 + ["random"])
    others = [read_stack(f"{long} {last}", 67) for last in ("mixit", "standard")]
    assert len({stack.folder for stack in others}) == 2
    assert all(len(stack.folder) == 60 for stack in others)


MISTAKES = {
    "": "the stack is empty",
    "mixti standard": "unknown variant or mixer 'mixti' in the stack 'mixti standard': did you "
    "mean 'mixit'",
    "mixit*3": "'mixit*3' is 3 layers, which do not fill model.layers = 4: set the layers to a "
    "multiple of 3",
    "mixit*99999": "is 99999 layers, which do not fill",
    "mixit*0 standard": "'mixit*0' in the stack 'mixit*0 standard' is not NAME, NAME*COUNT or",
    "mixit*2@upper": "'mixit*2@upper' in the stack",
    "mixit@": "'mixit@' in the stack",
    "mixit@uper": "unknown place 'uper' in the stack 'mixit@uper': did you mean 'upper'",
    "mixit@3-2": "says @3-2, but the layers are 0 to 3",
    "mixit@2-4": "says @2-4, but the layers are 0 to 3",
    "mixit@4": "says @4, but the layers are 0 to 3",
    "mixit@0-1 standard@1": "'mixit@0-1 standard@1' names layer 1 twice",
    "mixing-freeze-qk standard": "'mixing-freeze-qk' in the stack 'mixing-freeze-qk standard' "
    "freezes 'qk', but the mixing mixer has no queries and keys: remove it",
    "window-freeze-v-matrix": "freezes 'matrix', but the window mixer has no matrices to train",
    "mixit attention-freeze-x": "unknown part 'x' in the stack",
    "mixit attention-freeze-head": "freezes 'head', which is not part of a layer: name it in",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_stack(text, 4)
    assert MISTAKES[text] in str(error.value) and "\n" not in str(error.value)


def test_keys_that_say_the_same_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"and so does model.variant = 'mixit': leave one"):
        find_stack(4, stack="standard", variant="mixit")
    with pytest.raises(ConfigError, match=r"and so does model.mixer = 'mixing'"):
        find_stack(4, stack="standard", mixer="mixing")
    with pytest.raises(ConfigError, match="write attention-freeze-qk in the stack"):
        find_stack(4, stack="standard", freeze=["qk"])
    with pytest.raises(ConfigError, match="write mixing-freeze-v in the stack"):
        find_stack(4, stack="mixit standard", freeze=["v"])
    with pytest.raises(ConfigError, match="write attention-freeze-qk in the stack"):
        find_stack(4, stack="mixit standard", freeze=["qk"])
    with pytest.raises(ConfigError, match="leave it out, no layer of 'mixit' has it"):
        find_stack(4, stack="mixing mixit", freeze=["qk"])
    with pytest.raises(ConfigError, match="nothing is left to train"):
        everything = "attention-freeze-qk-v-o-mlp-norm mixing-freeze-v-o-mlp-norm"
        find_stack(4, stack=everything, freeze=["embedding", "head"])
    with pytest.raises(ConfigError, match=r"is 4 layers, which do not fill model.layers = 6"):
        llama_config(dataclasses.replace(TINY, layers=6), read_stack("mixit*3 standard", 4))


def losses(model: MixitLlama, stack: Stack, tokens: torch.Tensor) -> list[float]:
    """Of three steps."""
    freeze(model, stack)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer, found = torch.optim.AdamW(trained, lr=1e-2), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stack_of_equal_pairs_trains_as_the_variant(variant: str, tokens: torch.Tensor) -> None:
    stack = find_stack(2, stack=" ".join([PAIRS[variant].structure] * 2))
    built = [build(variant), build(stack.structure)]
    ours, theirs = (losses(model, VARIANTS[variant], tokens) for model in built)
    assert ours == theirs and identity(built[0].config) == identity(built[1].config)


def test_the_golden_identity_of_a_variant_has_no_stack() -> None:
    """What a checkpoint said before there were stacks, word for word."""
    described = identity(llama_config(TINY, VARIANTS["random"]))
    assert described["mixer"] == "attention" and "stack" not in described
    assert described["frozen"] == ["qk", "v", "o", "mlp", "norm"]


@pytest.mark.parametrize("text", ["mixit*3 standard", "frozen_qk@upper", "random mixit"])
def test_a_checkpoint_says_what_its_layers_are(text: str) -> None:
    stack = find_stack(4, stack=text, freeze=["embedding"])
    described = identity(llama_config(DEEP, stack))
    assert saved_stack(described, 4) == stack
    assert ("fingerprint" in described) == ("mixit" in text)


def test_weights_do_not_depend_on_the_layers_beside_them() -> None:
    """Each weight is drawn by its name, and each matrix by its layer."""
    pure = {name: build(name, shape=DEEP) for name in ("mixit", "standard")}
    hybrid = build("mixit*3 standard", shape=DEEP)
    for layer, block in hybrid.layers.items():
        same = pure["standard" if layer == "3" else "mixit"].layers[layer]
        for ours, theirs in zip(block.parameters(), same.parameters(), strict=True):
            assert torch.equal(ours, theirs)
        for ours, theirs in zip(block.buffers(), same.buffers(), strict=True):
            assert torch.equal(ours, theirs)


def test_each_layer_freezes_its_own_parts() -> None:
    stack = read_stack("random mixing-freeze-v frozen_mlp standard", 4)
    model = llama_config(DEEP, stack).build()
    freeze(model, stack)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert {name for name in frozen if not name.startswith("layers.0.")} == {
        "layers.1.attention.wv.weight",
        *(f"layers.2.feed_forward.w{n}.weight" for n in (1, 2, 3)),
    }
    first = {name for name, _ in model.named_parameters() if name.startswith("layers.0.")}
    assert first and first <= frozen


@pytest.mark.parametrize("text", ["mixit*3 standard", "frozen_qk@upper mixit@0", "random mixit"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_count_is_that_of_the_model(text: str, tied: bool) -> None:
    shape = dataclasses.replace(DEEP, kv_heads=2, bias=True, tied=tied)
    stack = read_stack(text, 4)
    model = llama_config(shape, stack).build()
    freeze(model, stack)
    by_name = {name: (p.numel(), p.requires_grad) for name, p in model.named_parameters()}
    assert {w.name: (w.elements, w.trained) for w in weights(shape, stack)} == by_name
    counts = count(shape, stack)
    assert counts.trainable == sum(size for size, trained in by_name.values() if trained)


def test_the_mixers_flops_are_those_of_their_layers() -> None:
    """Per token at width n and length m: attention 2mn and 4mn, mixing mn and mn."""
    n, m = DEEP.width, DEEP.seq_len
    hybrid = count(DEEP, read_stack("mixit*3 standard", 4))
    standard = count(DEEP, VARIANTS["standard"])
    without_qk = 3 * 2 * n * n  # queries and keys that three layers do not have
    assert standard.flops_forward - hybrid.flops_forward == 2 * without_qk + 3 * m * n
    assert standard.flops_backward - hybrid.flops_backward == 4 * without_qk + 3 * 3 * m * n
    assert hybrid.mixing_rows == 3 * DEEP.heads * m


@pytest.mark.parametrize("text", ["mixit*3 standard", "standard mixit", "frozen_qk@upper mixit@0"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_decoding_with_a_cache_gives_the_logits_of_the_model(
    text: str, recipe: str, tokens: torch.Tensor
) -> None:
    model = build(text, recipe, shape=dataclasses.replace(DEEP, kv_heads=2))
    with torch.no_grad():
        expected = model(tokens)
    decoder = Decoder(model)
    steps = [decoder.step(tokens[:, :7])]
    steps += [decoder.step(tokens[:, n : n + 1]) for n in range(7, tokens.shape[1])]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, atol=1e-5, rtol=1e-5)


def test_a_block_is_compiled_once_for_each_kind_of_layer(tokens: torch.Tensor) -> None:
    torch._dynamo.reset()
    eager, compiled = build("mixit standard", shape=DEEP), build("mixit standard", shape=DEEP)
    counter = CompileCounterWithBackend("aot_eager")
    for block in compiled.layers.values():
        block.compile(fullgraph=True, backend=counter)
    positions = torch.arange(24).remainder(10).expand(2, -1)
    for model in (eager, compiled):
        model(tokens, positions).logsumexp(-1).mean().backward()
    assert counter.frame_count == 2
    for ours, theirs in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)
