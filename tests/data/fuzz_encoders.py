"""Compares gigatoken, as `prepare` uses it, to the libraries that define the ids.

    python -m tests.data.fuzz_encoders --cases 100000
    python -m tests.data.fuzz_encoders --characters

The ranks hold every pair of bytes, so that the ids show where a text was cut. `--characters` goes
over all characters instead of random texts, and prints those that gigatoken cuts otherwise: each
must be one that `prepare` leaves to the other library.
"""

import argparse
import base64
import itertools
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mixit_titan.data import fast_encoder
from mixit_titan.data.fast_encoder import FastEncoder, choose_encoder
from mixit_titan.data.tokenizers import build_tokenizer

RANKS = {"gpt2": 256 + 256**2, "cl100k": 100256, "llama3": 128000}
SPECIAL = ["<|endoftext|>", "<|end_of_text|>", "<|begin_of_text|>", "<|fim_prefix|>", "<|eot_id|>"]
SPACES = " \t\n\r\v\f\x1c\x85\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
# Half of a surrogate pair is no text in UTF-8 and is refused by what reads it (test_readers.py).
# What others have made of it comes: U+FFFD, or its escape. The first two are beside the halves.
BESIDE_SURROGATES = [
    "\ud7ff",
    "\ue000",
    "\ufffd",
    "\ufffd\ufffd\ufffd",
    "\\ud83d",
    "\\udc00",
    "\uffff",
]
WORDS = [
    "'s",
    "'LL",
    "'\u017f",
    "don't",
    "naïve",
    "123456",
    "x",
    "_",
    "\r\n",
    "数学",
    "ﬁ",
    "é",
    "²Ⅷ",
]


def fast(pattern: str, folder: Path) -> FastEncoder:
    """The encoder of ranks of which every pair of bytes is one, and none is unreachable but for
    Llama-3's, which has such."""
    tokens = (bytes(t) for n in (1, 2, 3) for t in itertools.product(range(256), repeat=n))
    chosen = list(itertools.islice(tokens, RANKS[pattern]))
    if pattern == "llama3":  # words that no chain of pairs leads to
        chosen[-3:] = [b" strawberries", b"  \n\n\n", b"'ll never"]
    lines = [base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(chosen)]
    path = folder / f"{pattern}.tiktoken"
    path.write_bytes(b"".join(lines))
    encoder, said = choose_encoder(build_tokenizer(str(path)), np.dtype("<u4"), "gigatoken")
    assert isinstance(encoder, FastEncoder), said
    return encoder


def texts(cases: int, seed: int) -> Iterator[str]:
    """Random Unicode, runs of spaces, control characters, long words, what is left of broken
    surrogates, what looks like a special token, and all of them after each other."""
    draw = random.Random(seed)
    kinds = [
        lambda: draw.choice(SPACES) * draw.randint(1, 40),
        lambda: "".join(draw.choices(SPACES, k=draw.randint(1, 12))),
        lambda: "".join(_character(draw) for _ in range(draw.randint(1, 12))),
        lambda: "".join(chr(draw.randrange(0x3000)) for _ in range(draw.randint(1, 12))),
        lambda: "".join(chr(draw.randrange(0x20)) for _ in range(draw.randint(1, 8))),
        lambda: "".join(draw.choices(WORDS, k=draw.randint(1, 6))),
        lambda: draw.choice(SPECIAL),
        lambda: draw.choice(SPECIAL)[: draw.randint(1, 12)],
        lambda: draw.choice("aé数1'") * draw.choice([3, 200, 3000]),
        lambda: "".join(draw.choices(BESIDE_SURROGATES, k=draw.randint(1, 6))),
    ]
    weights = [4, 4, 6, 6, 3, 8, 2, 2, 1, 2]
    for _ in range(cases):
        chosen = draw.choices(kinds, weights, k=draw.randint(1, 8))
        yield "".join(kind() for kind in chosen)


def words(size: int, seed: int) -> Iterator[str]:
    """Each of this many bytes, with nothing in it at which all patterns cut."""
    draw = random.Random(seed)
    for letter in "xé数!1 \n'":
        yield letter * (size // len(letter.encode()))
    yield "".join(draw.choices("abcdefghij", k=size))
    yield "".join(draw.choices("éèüñßøåæç", k=size // 2))


def _character(draw: random.Random) -> str:
    """Any one that can be in UTF-8: half of a surrogate pair cannot."""
    number = draw.randrange(0x110000 - 0x800)
    return chr(number + 0x800 if number >= 0xD800 else number)


def differences(encoder: FastEncoder, cases: Iterator[str], *, at_once: int = 256) -> list[str]:
    """The texts that the two encoders do not give the same ids."""
    found = []
    while some := list(itertools.islice(cases, at_once)):
        encoded = [text.encode() for text in some]
        tokens, lengths = encoder.encode(encoded)
        parts = np.split(tokens, np.cumsum(lengths)[:-1])
        for text, ids in zip(some, parts, strict=True):
            exact = [*encoder.exact.tokenizer.encode(text), encoder.exact.tokenizer.eos_id]
            if ids.tolist() != exact:
                found.append(text)
    return found


def new_characters(encoder: FastEncoder) -> list[int]:
    """The characters that gigatoken itself cuts otherwise."""
    found = []
    for number in itertools.chain(range(0xD800), range(0xE000, 0x110000)):
        c = chr(number)
        text = f"a{c}b 1{c}2 !{c}! {c}  {c}\n{c}x'{c}{c}{c}{c}s \t{c}\r\n{c}"
        ids = encoder.gigatoken.encode(text.encode()).tolist()
        if ids != encoder.exact.tokenizer.encode(text):
            found.append(number)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cases", type=int, default=100_000, help="texts for each pattern")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--characters", action="store_true")
    args = parser.parse_args()
    fast_encoder._COMPARED, fast_encoder._SHARE = 0, 2**60  # all are compared here instead
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for pattern in RANKS:
            encoder, begun = fast(pattern, Path(folder)), time.monotonic()
            if args.characters:
                found = new_characters(encoder)
                left = [n for n in found if not fast_encoder._NEW_CHARACTERS.match(chr(n))]
                print(f"{pattern}: {len(found):,} characters differ, {len(left)} not left aside")
            else:
                left = differences(encoder, texts(args.cases, args.seed))
                print(f"{pattern}: {args.cases:,} texts, {len(left)} different", *map(ascii, left))
            print(f"  {time.monotonic() - begun:.0f} s", flush=True)
            failed |= bool(left)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
