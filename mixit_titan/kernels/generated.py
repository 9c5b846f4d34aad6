"""The product with a matrix that is drawn while it is multiplied.

Only three small tensors are kept per layer: the key (seed, layer, first head), the mean of each
row, and the standard deviation of each head. On a GPU a Triton kernel draws each tile in registers.
Elsewhere torch draws strips of rows, which is slow and only saves memory.

Shapes: B batch, L length, N heads, H head width, M the longest length.
"""

import torch

from mixit_titan.kernels.documents import document_spans
from mixit_titan.kernels.gpu import by_triton, mix_generated
from mixit_titan.kernels.mixing import MatrixSpec, assemble, draw_noise, head_stds, row_means

_ROWS = 64  # drawn at a time if there is no Triton


def generated_state(
    spec: MatrixSpec, layer: int, heads: range, device: torch.device
) -> dict[str, torch.Tensor]:
    """Return the tensors that `generated_mix` takes.

    The layer is in a tensor so that all layers share their compiled code. Float32 numbers are kept
    as their bits: a model that is cast to bfloat16 must not round them.
    """
    key = torch.tensor([spec.seed, layer, heads.start], device=device)
    if by_triton(device):
        from mixit_titan.kernels import triton_noise

        signs = spec.noise == "sign"
        means_NM = triton_noise.row_means(key, len(heads), spec.length, spec.causal, signs)
    else:
        means_NM = row_means(spec, layer, heads, device)
    stds_N = head_stds(spec, layer, heads, device)
    return {"key": key, "means": _bits(means_NM), "stds": _bits(stds_N)}


@torch.library.custom_op("mixit_titan::generated_mix", mutates_args=())
def generated_mix(
    v_BLNH: torch.Tensor,
    key: torch.Tensor,
    means: torch.Tensor,
    stds: torch.Tensor,
    documents: torch.Tensor | None,
    causal: bool,
    add_v: bool,
    sink_head: bool,
    signs: bool,
    transposed: bool,
) -> torch.Tensor:
    """Return A v, or A^T v if `transposed`. `add_v` says whether A has the identity, `signs`
    whether its noise consists of signs. `documents` is a `document_table`; None: one document per
    row."""
    means_NM, stds_N = means.view(torch.float32), stds.view(torch.float32)
    if by_triton(v_BLNH.device):
        flags = (causal, add_v, sink_head, signs, transposed)
        return mix_generated(v_BLNH, key, means_NM, stds_N, documents, *flags)
    rows = Rows(key, means_NM, stds_N, causal, add_v, sink_head, signs)
    v_BLNH = v_BLNH.contiguous()
    if documents is None:
        return _mix(rows, v_BLNH, transposed)
    out_BLNH = torch.empty_like(v_BLNH)
    for (start, end), batch in document_spans(documents).items():
        out_BLNH[batch, start:end] = _mix(rows, v_BLNH[batch, start:end], transposed)
    return out_BLNH


@generated_mix.register_fake
def _(v_BLNH: torch.Tensor, *_: torch.Tensor | bool | None) -> torch.Tensor:
    return torch.empty_like(v_BLNH, memory_format=torch.contiguous_format)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: torch.Tensor) -> None:
    _, key, means, stds, documents, *ctx.flags = inputs
    ctx.save_for_backward(key, means, stds, documents)


def _backward(
    ctx: torch.autograd.function.FunctionCtx, grad_BLNH: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    *flags, transposed = ctx.flags
    grad = generated_mix(grad_BLNH, *ctx.saved_tensors, *flags, not transposed)
    return grad, *[None] * 9


generated_mix.register_autograd(_backward, setup_context=_save)


class Rows:
    """Draws rows of A - I, or of A if it has no identity, for all heads at once."""

    def __init__(
        self,
        key: torch.Tensor,
        means_NM: torch.Tensor,
        stds_N: torch.Tensor,
        causal: bool,
        identity: bool,
        sink_head: bool,
        signs: bool,
    ) -> None:
        self.seed, self.layer, first = key.tolist()
        self.heads = range(first, first + len(stds_N))
        self.means_NM, self.stds_N = means_NM, stds_N
        self.noise = "sign" if signs else "gaussian"
        self.flags = {"causal": causal, "sink_head": sink_head, "less_identity": identity}

    def draw(self, first: int, last: int, columns: int) -> torch.Tensor:
        """Return rows first to last and the leading columns: (N, last - first, columns) in
        float32."""
        rows = torch.arange(first, last, device=self.stds_N.device)
        heads = torch.tensor(list(self.heads), device=rows.device).view(-1, 1, 1, 1)
        noise = draw_noise(self.noise, self.seed, self.layer, heads, rows, columns)
        means = self.means_NM[:, first:last]
        return assemble(noise, means, self.stds_N, self.heads, rows, **self.flags)


def _mix(rows: Rows, v_BLNH: torch.Tensor, transposed: bool) -> torch.Tensor:
    length, dtype = v_BLNH.shape[1], v_BLNH.dtype
    identity, causal = rows.flags["less_identity"], rows.flags["causal"]
    out_BLNH = v_BLNH.clone() if identity else torch.zeros_like(v_BLNH)
    for i in range(0, length, _ROWS):
        j = min(i + _ROWS, length)
        seen = j if causal else length
        a_NSL = rows.draw(i, j, seen).to(dtype)
        if transposed:
            out_BLNH[:, :seen] += torch.einsum("nij,binh->bjnh", a_NSL, v_BLNH[:, i:j])
        else:
            out_BLNH[:, i:j] += torch.einsum("nij,bjnh->binh", a_NSL, v_BLNH[:, :seen])
    return out_BLNH


def _bits(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.view(torch.int32)
