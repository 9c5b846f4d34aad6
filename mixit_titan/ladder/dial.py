"""One dial for all sizes: the depth of a model determines everything else, by these rules:

    width   = aspect * depth                         width and depth grow in proportion
    heads   = width / head width                     heads keep their width
    hidden  = 8/3 width, rounded up to 16            as many weights in a gated MLP as 4 width
                                                     gives without a gate
    rate    = rate at base width * base width / width
    batch   = rows per layer * depth                 FLOPs grow as depth^6, the batch as their
                                                     sixth root

and for a run of that size:

    tokens  = tokens per parameter * N, or FLOPs / (FLOPs per token), rounded to full steps
    warm-up = a tenth of the steps; then linear decay of the rate to zero

N counts the parameters of the layers, trained or frozen, without the embedding and the output head,
whose size depends on the vocabulary. All variants of one depth share the rules of `standard`:
nothing is tuned for any one of them.
"""

from dataclasses import dataclass

from mixit_titan.model.accounting import count, weights
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack

_HIDDEN_MULTIPLE = 16
WARMUP_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Dial:
    """The constants of the rules above."""

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
        """The shape of a model of this depth."""
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
        """The learning rate at this depth."""
        return self.base_rate * self.base_width / (self.aspect * depth)

    def rows(self, depth: int) -> int:
        """Sequences per training step at this depth."""
        return self.rows_per_layer * depth


def layer_parameters(shape: Shape, stack: Stack) -> int:
    """N, the parameters of the layers, as used in fits and in tokens per parameter."""
    found = weights(shape, stack)
    return sum(weight.elements for weight in found if weight.name.startswith("layers."))


def flops_per_token(shape: Shape, stack: Stack) -> int:
    """FLOPs per token of training, forward and backward."""
    return count(shape, stack).flops_per_token
