"""`mixit-titan generate`: from a run's folder and prompts to text on the screen."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from mixit_titan.data.encoding import Encoder
from mixit_titan.data.tokenizers import vocabulary
from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError
from mixit_titan.fields import Group
from mixit_titan.generation.generate import generate
from mixit_titan.generation.sampling import Sampling
from mixit_titan.generation.text import GrowingText
from mixit_titan.ranges import COUNT, NOT_NEGATIVE, SEED
from mixit_titan.reading import read_text
from mixit_titan.runtime.trained import Trained, load_trained

_TOKENS = 200


@dataclass
class GenerateArguments:
    """Generate text from a trained model. It is printed token by token, after its prompt.

    Example: mixit-titan generate runs/debug_mixit --prompt "def main(" --tokens 50
    """

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR")]
    """The folder of a training run (its dump_folder)."""
    prompt: Annotated[str | None, Group("what is generated")] = None
    """The beginning of the text. Without one, or if it is empty, the text begins after an
    end-of-text token."""
    prompts: Path | None = None
    """A file with one prompt per line; text is generated for all of them at once."""
    tokens: Annotated[int | None, COUNT] = None
    """The maximum number of new tokens (default: 200, or as many as the model's length allows)."""
    temperature: Annotated[float, Group("sampling")] = 1.0
    """Below 1, likely tokens are drawn more often. 0: always the most likely token."""
    top_p: float = 1.0
    """Sample only from the most likely tokens that together have this probability."""
    seed: Annotated[int, SEED] = 0
    """The same seed gives the same text."""
    step: Annotated[int | None, NOT_NEGATIVE, Group("the model")] = None
    """The step of the checkpoint (default: the newest)."""
    cache: bool = True
    """Cache keys and values. Without the cache, the text is the same but takes longer."""


def run_generate(args: GenerateArguments) -> None:
    """Print the texts of the prompts."""
    sampling = Sampling(temperature=args.temperature, top_p=args.top_p, seed=args.seed)
    texts = _prompts(args)
    check_device()
    trained = load_trained(args.run_dir, args.step)
    prompts = [_encode(trained, text) for text in texts]
    new = generate(
        trained.model,
        prompts,
        count=_count(args.tokens, max(map(len, prompts)), trained.model.config.max_seq_len),
        sampling=sampling,
        vocabulary=vocabulary(trained.tokenizer),
        end_of_text=trained.tokenizer.eos_id,
        cache=args.cache,
    )
    rows = [GrowingText(trained.tokenizer, prompt) for prompt in prompts]
    if not all(texts):
        print(
            "Without a prompt the text begins after an end-of-text token, and the model was "
            "never trained to predict what follows one: add --prompt",
            file=sys.stderr,
        )
    for piece in shown(texts, rows, new):
        print(piece, end="", flush=True)


def shown(
    prompts: Sequence[str], rows: Sequence[GrowingText], new: Iterable[tuple[int, int | None]]
) -> Iterator[str]:
    """The rows, one below another. The first one that has not ended grows on the screen, and those
    below it wait."""
    several, current = len(rows) > 1, 0
    begin = [(f"== {n} ==\n" if several else "") + prompt for n, prompt in enumerate(prompts, 1)]
    yield begin[0]
    for row, token in new:
        rows[row].add(token)
        if row != current:
            continue
        yield rows[current].take()
        while rows[current].ended:
            yield "\n"
            current += 1
            if current == len(rows):
                return
            yield begin[current] + rows[current].take()


def _prompts(args: GenerateArguments) -> list[str]:
    if args.prompts is None:
        return [args.prompt or ""]
    if args.prompt is not None:
        raise ConfigError("--prompt and --prompts are both given: leave one of them out")
    try:
        text = read_text(args.prompts, advice="name a text file in --prompts")
    except FileNotFoundError:
        raise ConfigError(f"--prompts {args.prompts} does not exist: name a text file") from None
    if not text:
        raise ConfigError(f"--prompts {args.prompts} is empty: write one prompt per line")
    return text.removesuffix("\n").split("\n")


def _encode(trained: Trained, text: str) -> list[int]:
    if not text:
        if trained.tokenizer.eos_id is None:
            raise ConfigError("the tokenizer has no end-of-text token to begin with: add --prompt")
        return [trained.tokenizer.eos_id]
    try:
        return [int(i) for i in Encoder(trained.tokenizer, np.dtype(np.int64)).ids(text)]
    except UnicodeEncodeError:
        raise ConfigError(f"--prompt {text!r} is not UTF-8") from None


def _count(asked: int | None, prompt: int, longest: int) -> int:
    """The number of new tokens of each row, so that the longest prompt and its continuation fit the
    model's length."""
    if prompt + (asked or 1) > longest:
        raise ConfigError(
            f"a prompt of {prompt} tokens and {asked or 1} new ones exceed the model's length of "
            f"{longest}: shorten the prompt" + (", or lower --tokens" if asked else "")
        )
    return asked or min(_TOKENS, longest - prompt)
