"""Every stack is exported: its logits, its tokens, and the authors' own."""

import ast
import dataclasses
import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from mixit_titan.data.tokenizers import build_tokenizer
from mixit_titan.errors import ConfigError
from mixit_titan.export.command import write_export
from mixit_titan.export.mixit_folder import mixit_config
from mixit_titan.export.modeling_mixers import MATRICES
from mixit_titan.export.modeling_mixit import Mixit
from mixit_titan.generation.generate import generate
from mixit_titan.generation.sampling import Sampling
from mixit_titan.model.build import llama_config
from mixit_titan.model.llama import MixitLlama
from mixit_titan.model.mixers.registry import MIXERS
from mixit_titan.model.recipes import Recipe
from mixit_titan.model.shapes import Shape
from mixit_titan.model.variants import VARIANTS
from mixit_titan.runtime.trained import Trained
from tests.export.conftest import read
from tests.export.reader import NEW, PROMPTS, TOKENS
from tests.model.conftest import build
from tests.model.test_golden import FILES, golden_model
from tests.model.test_golden import golden as golden

VOCABULARY = 257  # of bytes; the models have ids beyond
SHAPE = Shape(width=32, layers=2, heads=4, hidden=48, vocab=264, seq_len=32, bias=True, window=5)
GROUPED = dataclasses.replace(SHAPE, kv_heads=2, tied=True, rope_factor=8.0, rope_theta=500.0)
# Name of the folder -> stack, recipe, shape.
STACKS = {mixer: (mixer, "paper", SHAPE) for mixer in MIXERS} | {
    "hybrid": ("mixit standard", "paper", SHAPE),
    "official": ("frozen_qk mixit", "official", GROUPED),
    "windows": ("embedding window", "paper", GROUPED),
}


@pytest.fixture(scope="module")
def models() -> dict[str, MixitLlama]:
    return {name: moved(build(*args, mixing_seed=3)) for name, args in STACKS.items()}


@torch.no_grad()
def moved(model: MixitLlama) -> MixitLlama:
    """As if trained: no bias is zero, no norm one. And ids that no token has are the likeliest."""
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters():
        param += 0.1 * torch.randn(param.shape, generator=generator)
    head = model.lm_head.weight
    head[VOCABULARY:] = 3 * head[: len(head) - VOCABULARY]
    return model.requires_grad_(False).eval()


@pytest.fixture(scope="module")
def folders(
    models: dict[str, MixitLlama], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("stacks")
    for name, model in models.items():
        (root / name).mkdir()
        write_export(Trained(model, build_tokenizer("bytes"), "bytes", 1), root / name)
    return {name: root / name for name in models}


def our_tokens(model: MixitLlama) -> list[list[int]]:
    """Of `mixit-titan generate --temperature 0`."""
    rows: list[list[int]] = [[] for _ in PROMPTS]
    greedy = Sampling(temperature=0, top_p=1, seed=0)
    settings = {"count": NEW, "sampling": greedy, "vocabulary": VOCABULARY, "cache": True}
    for row, token in generate(model, PROMPTS, end_of_text=VOCABULARY - 1, **settings):
        rows[row] += [] if token is None else [token]
    return rows


def until_the_end(rows: list[list[int]]) -> list[list[int]]:
    end = VOCABULARY - 1
    return [row[: row.index(end)] if end in row else row for row in rows]


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
def test_transformers_generates_the_same_tokens_with_and_without_a_cache(
    models: dict[str, MixitLlama], folders: dict[str, Path], tmp_path: Path
) -> None:
    found = read("generate", list(folders.values()), tmp_path)
    for name, model in models.items():
        seen, ours = found[name], our_tokens(model)
        assert not seen["problems"], name
        torch.testing.assert_close(
            torch.tensor(seen["logits"]), model(TOKENS), atol=1e-5, rtol=1e-5
        )
        first = max(map(len, PROMPTS))
        for cache in ("cached", "uncached"):
            assert until_the_end(seen[cache]["padded"]) == ours, (name, cache)
            assert until_the_end(seen[cache]["alone"]) == ours[:1], (name, cache)
            widths = Counter(seen[cache]["widths"])
            assert widths[first] == 2 and (set(widths) == {first, 1}) == (cache == "cached")
        assert len({token for row in ours for token in row}) > 4, name


@pytest.mark.parametrize("name", ["hybrid", "official", "windows"])
def test_logits_with_a_cache_are_those_of_the_complete_forward(
    models: dict[str, MixitLlama], folders: dict[str, Path], name: str
) -> None:
    """In pieces of several lengths: what a cache gets wrong may leave the likeliest token alone."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model, past = Mixit.load(folders[name]), transformers.DynamicCache()
    with torch.no_grad():
        pieces = [model(tokens, None, past) for tokens in TOKENS.split((9, 1, 1, 6, 1, 14), dim=1)]
        torch.testing.assert_close(
            torch.cat(pieces, dim=1), models[name](TOKENS), atol=1e-5, rtol=1e-5
        )
    assert past.get_seq_length() == TOKENS.shape[1]


@pytest.mark.parametrize("name", [name for name in STACKS if name != "attention"])
def test_torch_and_safetensors_are_enough_for_logits(
    models: dict[str, MixitLlama], folders: dict[str, Path], name: str
) -> None:
    model, ours = Mixit.load(folders[name]), models[name]
    with torch.no_grad():
        for length in (9, 32):  # a longer sequence comes after a shorter one
            tokens = TOKENS[:, :length]
            torch.testing.assert_close(model(tokens), ours(tokens), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(model(TOKENS, last=3), model(TOKENS)[:, -3:])


@pytest.mark.parametrize("name", ["hybrid", "windows", "learned", "linear"])
def test_padding_on_either_side_changes_nothing(folders: dict[str, Path], name: str) -> None:
    model, row = Mixit.load(folders[name]), TOKENS[:1, :10]
    with torch.no_grad():
        alone = model(row)
        for before, after in ((4, 0), (0, 5), (2, 3)):
            tokens = torch.cat([TOKENS[1:, :before], row, TOKENS[1:, :after]], 1)
            mask = torch.tensor([[0] * before + [1] * 10 + [0] * after])
            padded = model(tokens, mask)[:, before : before + 10]
            torch.testing.assert_close(padded, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not FILES, reason="no golden files")
def test_the_authors_logits(golden: dict) -> None:
    config = json.loads(str(golden["config_json"]))
    ours = golden_model(golden, config)
    model = Mixit(mixit_config(ours.config, None))
    model.load_state_dict(ours.state_dict())
    for layer, block in enumerate(model.layers):
        if config["variant"] == "mixing":
            matrix, drawn = torch.from_numpy(golden[f"attn_weights/{layer}"]), block.attention
            identity = float(drawn.inner_attention.less_identity) * torch.eye(matrix.shape[-1])
            drawn.inner_attention.drawn_NLL = matrix - identity
    with torch.no_grad():
        logits = model(torch.from_numpy(golden["input_ids"]))
    assert (logits - torch.from_numpy(golden["logits"])).abs().max() < 1e-5


def test_the_one_file_defines_nothing_twice(folders: dict[str, Path]) -> None:
    """It is made of several files, and a name of one would silently replace another's."""
    tree = ast.parse((folders["hybrid"] / "modeling_mixit.py").read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in tree.body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            names += [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]
    assert len(names) > 40 and len(set(names)) == len(names), Counter(names).most_common(2)


def test_what_cannot_be_done_is_one_sentence(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Mixit.load(folders["mixing"])
    with pytest.raises(ValueError, match="33 tokens, but the model has 32 positions"):
        model(torch.zeros(1, 33, dtype=torch.long))
    with pytest.raises(
        ValueError, match=r"attention_mask has the shape \(1, 3\): it must have one column"
    ):
        model(TOKENS[:1, :4], torch.ones(1, 3))
    looks_ahead = llama_config(SHAPE, VARIANTS["mixit"], Recipe(causal=False))
    with pytest.raises(ConfigError, match="only a causal model can be exported"):
        mixit_config(looks_ahead, None)
    monkeypatch.delitem(MATRICES, "uniform")
    with pytest.raises(ConfigError, match="the uniform mixer cannot be exported: export/modeling"):
        mixit_config(build("uniform standard", shape=SHAPE).config, None)
