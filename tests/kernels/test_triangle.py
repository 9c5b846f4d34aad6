"""The product in C: its sums, its one-time compilation, and one sentence where it cannot be
compiled."""

import dataclasses
import logging
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from mixit_titan.kernels import stored, triangle
from mixit_titan.kernels.causal_mix import causal_mix
from mixit_titan.kernels.documents import document_table
from mixit_titan.kernels.mixing import MatrixSpec, mixing_matrix
from mixit_titan.kernels.triangle import compiled_mix


@pytest.fixture(autouse=True)
def not_compiled_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled_mix.cache_clear()
    yield
    compiled_mix.cache_clear()


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


HAS = torch.cpu.get_capabilities()
ISAS = {
    "plain": ("architecture", []),
    "avx2": ("avx2", ["-mavx2", "-mfma"]),
    "avx512": ("avx512_f", ["-mavx512f", "-mfma"]),
    "avx512_bf16": ("avx512_bf16", ["-mavx512f", "-mfma", "-mavx512bf16"]),
}
LENGTH = 301
SPEC = MatrixSpec(
    seed=4, length=LENGTH, std_low=0.2, std_high=0.2, identity=True, sink_head=True, causal=True
)
BATCHES = {  # the documents of each row
    "one token": ((1,),),
    "tokens alone": ((1,) * 40,) * 2,
    "all lengths": tuple((n, 49 - n, LENGTH - 49) for n in range(1, 49)),
    "one long and many short": ((LENGTH,), (1,) * 20 + (7,) * 40 + (1,), (150, 151)),
    "64 rows": ((60, 5),) * 64,
    "a full group of second blocks": ((150,),) * 8,  # nothing fills up before the first ones
}


@needs_gcc
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_sums_of_every_document(
    isa: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against NumPy, document by document; v and its gradient are parts of larger tensors."""
    needed, flags = ISAS[isa]
    if not HAS.get(needed):
        pytest.skip(f"this CPU has no {needed}")
    monkeypatch.setattr(triangle, "_isa", lambda: flags)
    monkeypatch.setattr(stored, "is_faster", lambda dtype: True)
    monkeypatch.setattr(stored, "_mix_rows", None)  # torch's
    heads, cpu = range(1, 4), torch.device("cpu")
    matrix = stored.stored_matrix(SPEC, 2, heads, dtype=dtype, device=cpu)
    identity = torch.eye(LENGTH)
    a = ((mixing_matrix(SPEC, 2, heads) - identity).to(dtype).double() + identity).numpy()
    generator = torch.Generator().manual_seed(0)
    for rows in BATCHES.values():
        for width in (64, 33, 1) if len(rows) < 40 else (16,):
            shape = (2, len(rows), sum(rows[0]), 3, width + 3)
            v, grad = torch.randn(shape, generator=generator).to(dtype)[..., 1:-2].unbind()
            positions = torch.tensor([[i for n in row for i in range(n)] for row in rows])
            out = causal_mix(
                v.requires_grad_(), "stored", SPEC, {"matrix": matrix}, document_table(positions)
            )
            out.backward(grad)
            for ours, given, sums in ((out, v, "nij,jnh->inh"), (v.grad, grad, "nij,inh->jnh")):
                error = 0.0
                for b, row in enumerate(rows):
                    for end, n in zip(np.cumsum(row), row, strict=True):
                        x, found = (t[b, end - n : end].detach().double() for t in (given, ours))
                        expected = np.einsum(sums, a[:, :n, :n], x.numpy())
                        scale = 1 + np.abs(expected)
                        error = max(error, float((np.abs(found.numpy() - expected) / scale).max()))
                assert error < (1e-5 if dtype == torch.float32 else 2**-8), (len(rows), width, sums)
            v.grad = None


@needs_gcc
def test_whole_rows_are_documents_too() -> None:
    """Of a batch of any size, with as many threads as it may be shared by."""
    kept = stored.stored_matrix(SPEC, 0, range(2), dtype=torch.float32, device=torch.device("cpu"))
    a = mixing_matrix(SPEC, 0, range(2)).double()
    for batch, threads in ((1, 1), (1, 3), (5, 2), (64, 2)):
        v = torch.randn(batch, LENGTH - 2, 2, 20)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        out = causal_mix(v, "stored", SPEC, {"matrix": kept})
        torch.set_num_threads(before)
        corner = a[:, : LENGTH - 2, : LENGTH - 2]
        expected = torch.einsum("nij,bjnh->binh", corner, v.double())
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@needs_gcc
def test_sums_that_are_added_up_in_several_steps() -> None:
    """More rows of v than fit the first cache, in either dtype."""
    spec = dataclasses.replace(SPEC, length=1301)
    a = mixing_matrix(spec, 0, [1]).double()
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        kept = stored.stored_matrix(spec, 0, range(1, 2), dtype=dtype, device=torch.device("cpu"))
        v, out = (torch.randn(1, 1301, 1, 9).to(dtype) for _ in range(2))
        for column, transposed in ((0, False), (128, True)):
            compiled_mix()(out, kept, v, None, column, dtype == torch.bfloat16, transposed)
            expected = (a.mT if transposed else a) @ v.double()[:, :, 0]
            error = (out.double()[:, :, 0] - expected).abs().max() / expected.abs().max()
            assert error < tolerance


@pytest.mark.parametrize("length", [301, 896, 1919])
def test_pairs_do_not_leave_a_row_and_rows_do_not_meet_in_a_cache(length: int) -> None:
    columns = stored.stored_columns(dataclasses.replace(SPEC, length=length), torch.device("cpu"))
    assert columns >= length + 128 and columns % 2 == 0 and columns % 1024 != 0


@needs_gcc
def test_bfloat16_is_rounded_as_torch_rounds() -> None:
    """One token: a v + v, which float32 holds but for the last bit."""
    edges = torch.tensor([float("inf"), float("-inf"), float("nan"), 3.38e38, 0.0, -0.0])
    v = torch.cat([edges, torch.randn(10000)]).bfloat16().view(1, 1, 1, -1)
    for a in (0.5, -0.7, 1.0):  # half: many sums are halfway between two numbers
        kept = torch.zeros(1, 1, 130, dtype=torch.bfloat16)
        kept[0, 0, 0] = a
        out = torch.empty_like(v)
        compiled_mix()(out, kept, v, None, 0, True, False)
        expected = (kept[0, 0, 0].float() * v.float() + v.float()).bfloat16()
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


@needs_gcc
def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_mix() is not None
    (library,) = (tmp_path / "mixit_titan").iterdir()
    made = library.stat().st_mtime_ns
    compiled_mix.cache_clear()
    monkeypatch.setattr(subprocess, "run", None)  # nobody is asked again
    assert compiled_mix() is not None and library.stat().st_mtime_ns == made


@needs_gcc
def test_an_old_compiler_does_without_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "cc"
    old.write_text('#!/bin/sh\ncase "$*" in *bf16*) exit 1;; esac\nexec gcc "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("CC", str(old))
    monkeypatch.setattr(triangle, "_isa", lambda: [triangle._BFLOAT16])
    assert compiled_mix() is not None


@needs_gcc
def test_nothing_to_multiply() -> None:
    kept = torch.zeros(2, 4, 132)
    for shape in ((0, 4, 2, 3), (1, 0, 2, 3), (1, 4, 2, 0)):
        v = torch.zeros(shape)
        compiled_mix()(torch.empty_like(v), kept, v, None, 0, False, False)


@needs_gcc
def test_a_damaged_library_is_made_again(tmp_path: Path) -> None:
    assert compiled_mix() is not None
    (library,) = (tmp_path / "mixit_titan").iterdir()
    library.unlink()  # what is loaded must not be written over
    library.write_bytes(b"half of it")
    compiled_mix.cache_clear()
    assert compiled_mix() is not None and library.stat().st_size > 1000


@needs_gcc
def test_it_works_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiled_mix() is not None


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [("no_such_compiler", "No such file or directory"), ("false", "returned non-zero exit status")],
)
def test_without_a_compiler_the_log_says_so_once(
    compiler: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("CC", compiler)
    with caplog.at_level(logging.WARNING):
        assert compiled_mix() is None and compiled_mix() is None
    (message,) = caplog.messages
    assert "needs a C compiler" in message and reason in message
