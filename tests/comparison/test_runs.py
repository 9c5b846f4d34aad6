"""What `compare` reads from a run on a mixture."""

import json
from pathlib import Path

import pytest

from mixit_titan.comparison.command import compare
from mixit_titan.comparison.runs import read_run
from mixit_titan.comparison.sentences import sentences
from tests.comparison.conftest import write_run
from tests.shards import write_shards


def test_a_mixture_is_known_by_its_sources_and_weights(tmp_path: Path) -> None:
    """Documents of 1 and of 3 bytes, each with its end of text: 1/2 and 3/4 bytes per token."""
    for name, size in (("web", 1), ("code", 3)):
        write_shards(tmp_path / name, train=[[7] * size] * 10, validation=[[7] * size] * 2)
    folder = write_run(tmp_path / "run", "mixit", {10: 2.0}, data=str(tmp_path / "web"))
    alone = read_run(folder)
    config = json.loads((folder / "config.json").read_text())
    config["dataloader"] |= {
        "sources": [{"path": str(tmp_path / name), "name": name} for name in ("web", "code")],
        "weights": [
            {"first": 0, "of_sources": [0.8, 0.2]},
            {"first": 64000, "of_sources": [0.5, 0.5]},
        ],
    }
    config["validator"]["dataloader"] = config["dataloader"]
    (folder / "config.json").write_text(json.dumps(config))
    mixed = read_run(folder)
    assert alone.settings["data.sources"] == ""
    assert mixed.settings["data.sources"] == "web 0.8, code 0.2; from row 64,000: web 0.5, code 0.5"
    assert alone.bytes_per_token == pytest.approx(1 / 2)
    assert mixed.bytes_per_token == pytest.approx(0.8 * 1 / 2 + 0.2 * 3 / 4)
    assert alone.text[0] == (2, 2) and mixed.text[0] == ((2, 2), (6, 2))


def test_tokens_of_other_tokenizers_are_said_to_be_other_text(tmp_path: Path) -> None:
    """The same 60 bytes in documents of 30, as 30 tokens each and as 14, each with its end."""
    folders = []
    for name, tokens in (("bytes", 30), ("pairs", 14)):
        write_shards(tmp_path / name, train=[[7] * tokens] * 2, validation=[[7] * tokens] * 2)
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        for split in manifest["splits"].values():
            split["bytes"] = 60
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
        data = str(tmp_path / name)
        folders.append(write_run(tmp_path / f"run_{name}", "mixit", {10: 2.0}, data=data,
                                 tokenizer=name))  # fmt: skip
    (said,) = [each for each in sentences(compare(folders)) if "tokenizers differ" in each]
    assert "a token is 0.97 bytes of" in said and ", 2.00 bytes of" in said
