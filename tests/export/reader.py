"""Reads exported folders as somebody does who has not got this project: reader.py HOW OUT FOLDER...

HOW is `plain` (torch and safetensors), `transformers` or `generate`. OUT gets the logits for TOKENS
and the ids of TEXT, or tokens after PROMPTS, by the names of the folders.
"""

import importlib
import json
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path

import torch

TOKENS = (7 * torch.arange(64) % 257).view(2, 32)
PROMPTS = [list(b"def main("), list(b"if"), list(b"return x")]
NEW = 12
TEXT = "def naïve(x):\n    return  {'数学': '🙂'}  # two\r\n\ttab's  12345 <|endoftext|>\n\n "


class Refuse(MetaPathFinder):
    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        if fullname.split(".")[0] in self.names:
            raise ImportError(f"{fullname} is not to be had here")


def read_plain(folder: Path) -> dict:
    sys.path.insert(0, str(folder))
    sys.modules.pop("modeling_mixit", None)
    model = importlib.import_module("modeling_mixit").Mixit.load(folder)
    sys.path.remove(str(folder))
    short = model(TOKENS[:, :9])  # a longer sequence comes after a shorter one
    assert torch.allclose(short, model(TOKENS)[:, :9], atol=1e-5)
    return {"logits": model(TOKENS).tolist()}


def read_by_transformers(folder: Path) -> dict:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, info = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    problems = {key: sorted(map(str, value)) for key, value in info.items() if value}
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    ids = tokenizer.encode(TEXT, add_special_tokens=False, split_special_tokens=True)
    return {
        "class": type(model).__name__,
        "problems": problems,
        "logits": model(input_ids=TOKENS).logits.tolist(),
        "loss": model(input_ids=TOKENS, labels=TOKENS).loss.item(),
        "ids": ids,
        "text": tokenizer.decode(ids),
        "end": tokenizer.eos_token_id,
    }


def read_and_generate(folder: Path) -> dict:
    """`padded`: the prompts side by side, those that are shorter padded on the left. `alone`: the
    first one. `widths`: the tokens that each call of the model was given."""
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    longest = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in PROMPTS])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in PROMPTS])
    found: dict = {"problems": {key: list(map(str, value)) for key, value in info.items() if value}}
    found["logits"] = model(input_ids=TOKENS).logits.tolist()
    widths: list[int] = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    settings = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    for cache in (True, False):
        widths.clear()
        padded = model.generate(ids, attention_mask=mask, use_cache=cache, **settings)
        alone = model.generate(ids[:1], use_cache=cache, **settings)
        rows = {"padded": padded[:, longest:].tolist(), "alone": alone[:, longest:].tolist()}
        found["cached" if cache else "uncached"] = rows | {"widths": list(widths)}
    return found


if __name__ == "__main__":
    how, out, *folders = sys.argv[1:]
    refused = ["torchtitan", "mixit_titan"] + (["transformers"] if how == "plain" else [])
    sys.path = [entry for entry in sys.path if not (Path(entry) / "mixit_titan").is_dir()]
    sys.meta_path.insert(0, Refuse(*refused))
    read = {
        "plain": read_plain,
        "transformers": read_by_transformers,
        "generate": read_and_generate,
    }[how]
    with torch.no_grad():
        found = {Path(folder).name: read(Path(folder)) for folder in folders}
    Path(out).write_text(json.dumps(found))
