"""A model of this project as a model of lm-eval, EleutherAI's lm-evaluation-harness.

Importing this module registers it there under the name `mixit_titan`:

    lm_eval --model mixit_titan --model_args run=runs/debug_mixit --tasks hellaswag

`hook.py` makes the harness's own command find that name.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows
from torchtitan.components.tokenizer import BaseTokenizer

from mixit_titan.data.encoding import Encoder
from mixit_titan.data.tokenizers import NumberTokenizer, vocabulary
from mixit_titan.device import check_device
from mixit_titan.errors import ConfigError
from mixit_titan.evaluation.likelihood import (
    ALONE,
    Forward,
    Share,
    Window,
    plain_forward,
    score,
)
from mixit_titan.generation.generate import generate
from mixit_titan.generation.sampling import Sampling
from mixit_titan.generation.text import GrowingText
from mixit_titan.runtime.trained import Trained, load_trained

_NEW_TOKENS = 256  # the harness's own default
_ROWS = 16  # sequences that are generated at once

Loglikelihood = tuple[float, bool]
"""The log-likelihood of a continuation, and whether greedy decoding would produce it."""


class ScoringModel(TemplateLM):
    """Computes log-likelihoods with any forward pass; the base class tokenizes the requests. It
    cannot generate text."""

    def __init__(
        self,
        tokenizer: BaseTokenizer,
        forward: Forward,
        *,
        vocab: int,
        max_length: int,
        share: Share = ALONE,
        rows: int | None = None,
        length: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(tokenizer, NumberTokenizer):
            raise ConfigError(
                "the run was trained on numbers, but tasks are text: name another run"
            )
        if tokenizer.eos_id is None:
            raise ConfigError("the run's tokenizer has no end-of-text token, which tasks need")
        self.tokenizer, self.max_length = tokenizer, max_length
        self._encoder = Encoder(tokenizer, np.dtype(np.int64))
        self._score = lambda windows: score(
            windows, forward, vocab=vocab, share=share, rows=rows, length=length
        )

    @property
    def eot_token_id(self) -> int:
        """The end-of-text token, which the harness puts before a text without context."""
        return self.tokenizer.eos_id

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """The ids of the text alone, as in training: no special tokens are added."""
        return [int(token) for token in self._encoder.ids(string)]

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = True
    ) -> list[Loglikelihood]:
        """The log-likelihood of each continuation, without a progress bar."""
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[Loglikelihood]:
        """Score continuations; a context that is too long is truncated from the left, as in the
        harness's own models."""
        windows = [self._window(context, asked) for _, context, asked in requests]
        scores = self._score(windows)
        return [(-float(found.nats.sum()), found.greedy) for found in scores]

    def _window(self, context: list[int], asked: list[int]) -> Window:
        if len(asked) > self.max_length:
            raise ConfigError(
                f"the task scores {len(asked)} tokens at once, and the model's context is "
                f"{self.max_length}: leave out the task, or train with a longer context"
            )
        return Window((context + asked)[-self.max_length - 1 :], scored=len(asked))

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = True
    ) -> list[float]:
        """The log-likelihoods of complete texts, in the windows that the harness cuts."""
        windows, of = [], []
        for number, request in enumerate(requests):
            for inputs, asked in get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.eot_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            ):
                windows.append(Window([*inputs, asked[-1]], scored=len(asked)))
                of.append(number)
        sums = [0.0] * len(requests)
        for number, found in zip(of, self._score(windows), strict=True):
            sums[number] -= float(found.nats.sum())
        return sums

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        """Refuse tasks that generate text, which is not supported during training."""
        raise ConfigError(
            "the task generates text, which [eval] does not support during training: leave it out, "
            "and run mixit-titan eval on a checkpoint"
        )


class TrainedModel(ScoringModel):
    """A model from a checkpoint, which can also generate text."""

    def __init__(self, trained: Trained, *, share: Share = ALONE, rows: int | None = None) -> None:
        model = trained.model
        super().__init__(
            trained.tokenizer,
            plain_forward(model),
            vocab=model.config.shape.vocab,
            max_length=model.config.max_seq_len,
            share=share,
            rows=rows,
        )
        self.model, self.step = model, trained.step
        self._rows, self._share = rows or _ROWS, share

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        """The same text as `mixit-titan generate`, up to the first stop sequence of the task."""
        wanted = [self._prompt(*request.args) for request in requests]
        texts = [""] * len(requests)
        # Requests with equal settings form batches, the longest first.
        order = sorted(range(len(wanted)), key=lambda n: (repr(wanted[n][1]), -len(wanted[n][0])))
        batches = []
        while order:
            settings = wanted[order[0]][1]
            batches.append([n for n in order[: self._rows] if wanted[n][1] == settings])
            order = order[len(batches[-1]) :]
        for batch in batches[self._share.rank :: self._share.ranks]:
            written = self._write([wanted[n][0] for n in batch], wanted[batch[0]][1])
            for number, text in zip(batch, written, strict=True):
                texts[number] = text
        return self._share.gathered_texts(texts)

    def _prompt(self, context: str, gen_kwargs: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
        """The end of the context, with room for the new tokens after it."""
        default = min(_NEW_TOKENS, self.max_length // 2)
        settings = dict(normalize_gen_kwargs(gen_kwargs, default))
        room = self.max_length - settings["max_gen_toks"]
        if room < 1:
            raise ConfigError(
                f"the task asks for {settings['max_gen_toks']} new tokens, and the model's context "
                f"is {self.max_length}: leave out the task, or train with a longer context"
            )
        return (self.tok_encode(context) or [self.eot_token_id])[-room:], settings

    def _write(self, prompts: Sequence[list[int]], settings: dict[str, Any]) -> list[str]:
        temperature = settings.get("temperature", 0.0) if settings["do_sample"] else 0.0
        ends = [end for end in settings["until"] if end]
        rows = [GrowingText(self.tokenizer, prompt) for prompt in prompts]
        texts, done = [""] * len(rows), set()
        for row, token in generate(
            self.model,
            prompts,
            count=settings["max_gen_toks"],
            sampling=Sampling(temperature=temperature, top_p=settings.get("top_p", 1.0), seed=0),
            vocabulary=vocabulary(self.tokenizer),
            end_of_text=self.eot_token_id,
            cache=True,
        ):
            if row in done:
                continue
            rows[row].add(token)
            texts[row] += rows[row].take()
            if token is None or any(end in texts[row] for end in ends):
                done.add(row)
            if len(done) == len(rows):
                break
        return [postprocess_generated_text(text, ends, None) for text in texts]

    def get_model_info(self) -> dict[str, Any]:
        """What the harness records of the model in its results."""
        return {"model_stack": self.model.config.stack.name, "model_step": self.step}


@register_model("mixit_titan")
class MixitTitan(TrainedModel):
    """The model that the harness's own command builds from `--model_args run=DIR[,step=N]` and
    --batch_size. Its --device is ignored: a GPU is used if there is one."""

    def __init__(
        self,
        run: str,
        step: int | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        check_device()  # `device` is `cuda:0` by default, whatever the machine has
        rows = int(batch_size) if str(batch_size).isdecimal() and int(batch_size) > 1 else None
        super().__init__(load_trained(Path(run), step), rows=rows)
