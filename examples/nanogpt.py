"""A GPT as in nanoGPT, with random mixing in place of attention.

    python examples/nanogpt.py

trains it on the characters of this file in less than a minute and prints the loss. The only new
part is `Mixing`: nanoGPT's CausalSelfAttention without queries, keys and softmax.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from mixit_titan.mixing import RandomMixing


class Mixing(nn.Module):
    """Computes c_proj(A (c_v x)) in place of c_proj(softmax(q k) v)."""

    def __init__(self, width: int, heads: int, length: int, layer: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_v = nn.Linear(width, width)
        self.c_proj = nn.Linear(width, width)
        self.mix = RandomMixing(heads, width // heads, length, layer=layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mix the tokens of a batch."""
        v = self.c_v(x).unflatten(-1, (self.heads, -1))  # (batch, tokens, heads, head width)
        return self.c_proj(self.mix(v).flatten(2))


class Block(nn.Module):
    """nanoGPT's block, with Mixing in place of CausalSelfAttention."""

    def __init__(self, width: int, heads: int, length: int, layer: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Mixing(width, heads, length, layer)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """nanoGPT's model."""

    def __init__(self, vocab: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads, length, layer) for layer in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of tokens."""
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def train(steps: int, length: int = 64) -> list[float]:
    """Train the model, and return the losses of `steps` steps."""
    torch.manual_seed(0)
    text = torch.tensor([ord(c) % 128 for c in Path(__file__).read_text()])
    model = GPT(vocab=128, width=64, heads=4, layers=2, length=length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        starts = torch.randint(len(text) - length, (16, 1))
        batch = text[starts + torch.arange(length + 1)]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step:4}  loss {loss.item():.3f}")
    return losses


if __name__ == "__main__":
    train(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
