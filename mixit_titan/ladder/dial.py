"""Sizes by one dial: the depth of a model sets everything else. The rule, in one place:

    width   = aspect * depth                         a model grows in both directions alike
    heads   = width / head width                     heads do not change, there are more of them
    hidden  = 8/3 width, rounded up to 16            a gated MLP as large as one of 4 width without
    rate    = rate at base width * base width / width
    batch   = rows per layer * depth                 FLOPs grow as depth^6, the batch as their
                                                     sixth root

and of a run of that size:

    tokens  = tokens per parameter * N, or FLOPs / (FLOPs per token), rounded to full steps
    warm-up = a tenth of the steps; the rate then falls to zero in a straight line

N are the parameters of the layers, trained or frozen: the embedding and the head, which a
vocabulary makes large or small, are not in it. All variants of one depth share one rule, that of
`standard`: nothing is tuned for one of them.
"""

from dataclasses import dataclass

from mixit_titan.model.accounting import count, weights
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack

_HIDDEN_MULTIPLE = 16
WARMUP_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Dial:
    aspect: int
    """Width per layer."""
    head_width: int
    seq_len: int
    base_width: int
    base_rate: float
    """The learning rate at the base width."""
    rows_per_layer: int
    tied: bool = False

    def shape(self, depth: int, vocab: int) -> Shape:
        width = self.aspect * depth
        return Shape(
            width=width,
            layers=depth,
            heads=width // self.head_width,
            hidden=-(-8 * width // (3 * _HIDDEN_MULTIPLE)) * _HIDDEN_MULTIPLE,
            vocab=vocab,
            seq_len=self.seq_len,
            tied=self.tied,
        )

    def rate(self, depth: int) -> float:
        return self.base_rate * self.base_width / (self.aspect * depth)

    def rows(self, depth: int) -> int:
        """Sequences of a step."""
        return self.rows_per_layer * depth


def layer_parameters(shape: Shape, stack: Stack) -> int:
    """N, which the fits and the tokens per parameter are by."""
    found = weights(shape, stack)
    return sum(weight.elements for weight in found if weight.name.startswith("layers."))


def flops_per_token(shape: Shape, stack: Stack) -> int:
    """Of a training step."""
    return count(shape, stack).flops_per_token
