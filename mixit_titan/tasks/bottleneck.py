"""A head that sees one hidden state: what the layers did not put into it cannot be decoded."""

import torch
from torch import nn

from mixit_titan.model.initialization import Normal, name_parameters


class BottleneckDecoder(nn.Module):
    """Decodes the token at each position l from the last hidden state h alone:

        out_l = unembed(norm(f(f(h + p_l))))    with  f(x) = gelu(linear(norm(x)))

    p_l are fixed sines and cosines. This is the decoder of MAD's compression (athms/mad-lab): all
    linears are as wide as the model.

    Shapes: B batch, L positions, D width.
    """

    def __init__(
        self, body: nn.Module, *, width: int, tokens: int, positions: int, seed: int
    ) -> None:
        super().__init__()
        body.lm_head = None
        self.decoder = nn.Sequential(
            *(nn.RMSNorm(width), nn.Linear(width, width), nn.GELU()),
            *(nn.RMSNorm(width), nn.Linear(width, width), nn.GELU()),
            *(nn.RMSNorm(width), nn.Linear(width, tokens)),
        )
        name_parameters(self, seed)
        for name, param in self.named_parameters():
            if param.ndim == 2:
                Normal(width**-0.5)(param)
            elif name.endswith("bias"):
                nn.init.zeros_(param)
        self.body = body
        self.register_buffer("positions_LD", sines(positions, width), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h_B1D = self.body(tokens)[:, -1:]
        return self.decoder(h_B1D + self.positions_LD[: tokens.shape[1]])


def sines(positions: int, width: int) -> torch.Tensor:
    """Return (L, D): half of row l are sines and half are cosines of l times frequencies that fall
    from 1 to 1/10000."""
    half = (width + 1) // 2
    frequencies = 10_000 ** -torch.linspace(0, 1, half)
    angles = torch.arange(positions)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
