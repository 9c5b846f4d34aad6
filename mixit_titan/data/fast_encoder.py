"""gigatoken as the encoder of `prepare`: the ids of tiktoken and tokenizers, many times as fast.

Every preparation checks that the ids are the same: each process compares the first megabyte of its
documents, and then one document in 512, to the library that defines the ids.

Where gigatoken 0.10 differs, and what is done about it:
- It encodes special tokens in a text as such: it is built without any.
- It knows Unicode 17, while tiktoken 0.14 and tokenizers 0.23 know 16: a letter, number or mark
  that is new in 17 is split differently. Documents with one are left to the other library
  (`python -m tests.data.fuzz_encoders --characters` compares all characters).
- It caches every word that it has met: it is rebuilt when it holds too much.
- tiktoken gives up on very long runs of spaces, and our encoder splits such a text: documents that
  may have one are left to it.
"""

import importlib.util
import itertools
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torchtitan.components.tokenizer import BaseTokenizer, HuggingFaceTokenizer

from mixit_titan.data.byte_level import from_ranks
from mixit_titan.data.encoding import Encoder
from mixit_titan.data.rank_tokenizer import GPT2, GPT4, GPT4O, LLAMA3, RankTokenizer
from mixit_titan.errors import ConfigError
from mixit_titan.files import json_text

EncoderName = Literal["auto", "gigatoken", "tiktoken", "tokenizers"]

_COMPARED = 2**20  # bytes of the first documents of a process, all of which are compared
_SHARE = 512  # after that, one document in this many is compared
_HELD = 2**28  # bytes that gigatoken's cache may hold
_LONG = 2**19  # bytes of a text on which tiktoken may give up

# gigatoken's equivalents of the patterns of rank files: they cut the same pieces.
_KNOWN_PATTERNS = {
    GPT2: r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    GPT4: (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
    LLAMA3: LLAMA3,
    GPT4O: GPT4O,
}
# Letters, numbers and marks that are new in Unicode 17, with what lies between them.
_NEW_CHARACTERS = re.compile(
    "[\u088f\u0c5c\u0cdc\u1acf-\u1aeb\ua7ce-\ua7d4\ua7f1\U00010940-\U0001095f\U00010ec5-\U00010efb"
    "\U00011b60-\U00011b67\U00011db0-\U00011de9\U00016ea0-\U00016ed3\U00016ff2-\U00016ff6"
    "\U000187f8-\U000187ff\U00018d09-\U00018df2\U0001e6c0-\U0001e6ff\U0002b73a-\U0002b73f"
    "\U0002cea2-\U0002cead\U000323b0-\U00033479]"
)
# Their first byte in UTF-8, which rules out most texts, and their first two or three.
_LEADS = (b"\xe0", b"\xe1", b"\xea", b"\xf0")
_BEGINNINGS = re.compile(
    rb"\xe0(?:\xa2\x8f|[\xb1\xb3]\x9c)|\xe1\xab|\xea\x9f"
    rb"|\xf0[\x90\x91\x96\x98\x9e\xab\xac\xb2\xb3]"
)


class EncodersDiffer(Exception):
    """Two encoders give a document different ids."""

    def __init__(self, document: int) -> None:
        super().__init__(document)
        self.document = document
        """The index of the text."""


class FastEncoder:
    """Encodes exactly as `exact` does."""

    def __init__(self, exact: Encoder, build: Callable[[], Any]) -> None:
        self.exact, self.build = exact, build
        self.gigatoken = build()
        # Its first use imports a lot: do that once, before the workers are forked.
        self.gigatoken.encode_batch([b""], parallel=False)
        self.name = "gigatoken"
        self.dtype = exact.dtype
        self.process = -1

    def encode(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of all texts, each followed by its end-of-text id, and the length of each."""
        if self.process != os.getpid():
            self._begin()
        aside = [place for place, text in enumerate(texts) if _is_left_to_exact(text)]
        if aside:
            return self._encode_with_exact(texts, aside)
        tokens, lengths = self._by_gigatoken(texts)
        ends = np.cumsum(lengths)
        for place in self._to_compare(texts):
            ids = self.exact.encode([texts[place]])[0]
            if not np.array_equal(ids, tokens[ends[place] - lengths[place] : ends[place]]):
                raise EncodersDiffer(place)
        if _resident() > self.limit:
            self.gigatoken = None
            self.gigatoken = self.build()
            self.limit = _resident() + _HELD
        return tokens, lengths

    def _begin(self) -> None:
        """Set up the state of a process, also after a fork."""
        self.process, self.draw = os.getpid(), np.random.default_rng()
        self.compared = 0
        self.limit = _resident() + _HELD

    def _encode_with_exact(
        self, texts: Sequence[bytes], aside: list[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode texts of which some are left to the exact encoder."""
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        start = 0
        for place in [*aside, len(texts)]:
            if place > start:
                try:
                    parts.append(self.encode(texts[start:place]))
                except EncodersDiffer as error:
                    raise EncodersDiffer(start + error.document) from None
            parts.append(self.exact.encode(texts[place : place + 1]))
            start = place + 1
        tokens, lengths = zip(*parts, strict=True)
        return np.concatenate(tokens), np.concatenate(lengths)

    def _by_gigatoken(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        if not texts:
            return np.empty(0, dtype=self.dtype), np.empty(0, dtype=np.int64)
        # On this thread: after a fork, its thread pool would have no threads.
        found = self.gigatoken.encode_batch(list(texts), parallel=False).layout
        ids, bounds = np.asarray(found.content.data), np.asarray(found.offsets)
        lengths = np.diff(bounds) + 1
        tokens = np.full(lengths.sum(), self.exact.tokenizer.eos_id, dtype=self.dtype)
        for place, (start, end) in enumerate(itertools.pairwise(bounds.tolist())):
            tokens[start + place : end + place] = ids[start:end]
        return tokens, lengths

    def _to_compare(self, texts: Sequence[bytes]) -> list[int]:
        chosen = self.draw.random(len(texts)) < 1 / _SHARE
        for place, text in enumerate(texts):
            if self.compared >= _COMPARED:
                break
            chosen[place] = True
            self.compared += len(text) + 1
        return np.flatnonzero(chosen).tolist()


def _is_left_to_exact(text: bytes) -> bool:
    if len(text) >= _LONG:
        return True
    if text.isascii() or not any(lead in text for lead in _LEADS):
        return False
    if _BEGINNINGS.search(text) is None:
        return False
    return _NEW_CHARACTERS.search(text.decode()) is not None


def _resident() -> int:
    """Bytes of memory that this process uses; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def choose_encoder(
    tokenizer: BaseTokenizer, dtype: np.dtype, name: EncoderName
) -> tuple[Encoder | FastEncoder, str]:
    """The encoder with this name, and one sentence that says which one it is and why."""
    exact = Encoder(tokenizer, dtype)
    fast_name = () if exact.name == "bytes" else ("gigatoken",)
    if name not in ("auto", exact.name, *fast_name):
        raise ConfigError(
            f"--encoder {name} does not support this tokenizer, whose encoder is {exact.name}: "
            "leave the option out"
        )
    if name == exact.name or exact.name == "bytes":
        return exact, f"Encoding with {exact.name}"
    try:
        fast = FastEncoder(exact, _builder(tokenizer))
    except ConfigError as error:
        if name == "gigatoken":
            raise ConfigError(
                f"--encoder gigatoken cannot be used, {error}: leave the option out"
            ) from None
        return exact, f"Encoding with {exact.name}: {error}"
    return fast, f"Encoding with gigatoken, compared to {exact.name} throughout"


def _builder(tokenizer: BaseTokenizer) -> Callable[[], Any]:
    """A function that builds gigatoken from this tokenizer; raises a ConfigError that says why it
    cannot."""
    if importlib.util.find_spec("gigatoken") is None:
        raise ConfigError("gigatoken, which is faster, is not installed")
    from gigatoken import Tokenizer

    if isinstance(tokenizer, RankTokenizer):
        pattern = _KNOWN_PATTERNS[tokenizer.pattern]
        form = from_ranks(tokenizer.encoding, pattern=pattern, specials=False).to_str()
    else:
        form = _byte_level_form(tokenizer)

    def build() -> Any:
        try:
            return Tokenizer.from_json(form)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the library is not an Exception
            said = " ".join(str(error).split())
            raise ConfigError(f"gigatoken does not support this tokenizer ({said:.100})") from None

    return build


def _byte_level_form(tokenizer: HuggingFaceTokenizer) -> str:
    """The tokenizer.json of a byte-level BPE, without special tokens and post-processing."""
    form = json.loads(tokenizer.tokenizer.to_str())
    steps = form["pre_tokenizer"] or {}
    steps = [step["type"] for step in steps.get("pretokenizers", [steps]) if step]
    plain = form["model"]["type"] == "BPE" and not form["model"].get("dropout")
    if not plain or form["normalizer"] is not None or "ByteLevel" not in steps:
        raise ConfigError("gigatoken is used for a byte-level BPE without normalization")
    if not all(token["special"] for token in form["added_tokens"]):
        raise ConfigError("gigatoken is not used with added tokens that are not special")
    return json_text(form | {"added_tokens": [], "post_processor": None})
