"""The noise W in Triton: the words of philox.py, turned into normals by a GPU's approximate
functions, or with their bits as signs.

Drawing limits the speed of the generated form, so every instruction counts (benchmarks/sass.py). A
round of Philox is two 32 x 32 -> 64 bit products and two three-way exclusive ors. The normals are
within 1e-5 of those of `philox.normals` (tests/kernels/test_normals.py has the bound).

Shapes: R rows, K columns, a group of 128 columns.
"""

import torch
import triton
import triton.language as tl

# The interpreter has no inline assembly, and multiplies the bits of bfloat16 numbers.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
ROWS, COLUMNS, SIGN_COLUMNS = 64, 64, 256  # of a tile of `row_means`


@triton.jit
def _round(c0, c1, c2, c3, k0, k1):
    a = c0.to(tl.uint64) * 0xD2511F53
    b = c2.to(tl.uint64) * 0xCD9E8D57
    next0 = (b >> 32).to(tl.uint32) ^ c1 ^ k0
    next2 = (a >> 32).to(tl.uint32) ^ c3 ^ k1
    return next0, b.to(tl.uint32), next2, a.to(tl.uint32)


@triton.jit
def _philox(seed, c0, c1, c2, c3):
    """Computes philox.philox. `tl.philox` splits each product into two instructions."""
    k0 = seed.to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    for i in tl.static_range(10):
        raised0 = tl.add(k0, (i * 0x9E3779B9) & 0xFFFFFFFF, sanitize_overflow=False)
        raised1 = tl.add(k1, (i * 0xBB67AE85) & 0xFFFFFFFF, sanitize_overflow=False)
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, raised0, raised1)
    return c0, c1, c2, c3


@triton.jit
def _approximate(x, NAME: tl.constexpr):
    """Computes lg2, sqrt, sin or cos in one or two instructions."""
    if INTERPRETED:
        if NAME == "lg2":
            x = tl.log2(x)
        elif NAME == "sqrt":
            x = tl.sqrt(x)
        elif NAME == "sin":
            x = tl.sin(x)
        else:
            x = tl.cos(x)
        return x
    return tl.inline_asm_elementwise(
        NAME + ".approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _uniform(word):
    """Computes philox.uniform."""
    signed = word.to(tl.int32, bitcast=True)
    return (signed ^ (signed >> 31)).to(tl.float32) * 4.6566127342e-10


@triton.jit
def _pair(word0, word1, std, less):
    """Return two normals of deviation `std`, minus `less`, by Box-Muller as in philox.normals.

    Near 1 the logarithm is u - 1 to first order, since the instruction has an absolute error there,
    which the root would amplify. The angle is shifted back by half a turn, to where sin and cos are
    accurate, and the root takes the sign.
    """
    u = tl.maximum(_uniform(word0), 1.0e-7)
    log = tl.where(u > 1 - 2.0**-12, (u - 1) * 1.4426950408889634, _approximate(u, "lg2"))
    radius = _approximate(log * (-1.3862943611198906 * std * std), "sqrt")
    angle = _uniform(word1) * 6.283185307179586 - 3.141592653589793
    less = -less
    return (less - radius * _approximate(angle, "cos"), less - radius * _approximate(angle, "sin"))


@triton.jit
def column_order(K: tl.constexpr):
    """Return which K columns of a group of 128 `draw` gives, in its order. A Philox call gives
    column i of four strips of 32. They come in the layout of a tensor core's operand, so that all
    four can stay with the thread that drew them."""
    k = tl.arange(0, K)
    return (k // 8 % 2 * 2 + k % 2) * 32 + k // 16 * 4 + k // 2 % 4


@triton.jit
def at_the_edge(a, rows, columns, head, FLAGS: tl.constexpr):
    """As mixing.assemble: zero where a row does not see, and the head that is not random."""
    CAUSAL, IDENTITY, SINK = FLAGS
    if SINK:
        diagonal = columns == rows
        sink = tl.where(diagonal | (columns == 0), 0.5, 0.0)
        if IDENTITY:
            sink = sink - tl.where(diagonal, 1.0, 0.0)
        a = tl.where(head == 0, sink, a)
    if CAUSAL:
        a = tl.where(columns <= rows, a, 0.0)
    return a


@triton.jit
def _normals(
    key, head, rows_R, first, std, less, R: tl.constexpr, K: tl.constexpr, FLAGS: tl.constexpr
):
    seed = tl.load(key)
    layer = tl.load(key + 1).to(tl.uint32)
    zero = tl.zeros((R, K // 4), tl.uint32)
    call = first // 128 * 32 + first % 32
    c0 = (call + tl.arange(0, K // 4)).to(tl.uint32)[None, :] + zero
    c1 = rows_R.to(tl.uint32)[:, None] + zero
    w0, w1, w2, w3 = _philox(seed, c0, c1, zero + head.to(tl.uint32), zero + layer)
    n0, n1 = _pair(w0, w1, std, less)
    n2, n3 = _pair(w2, w3, std, less)
    if FLAGS is not None:
        rows, columns = rows_R[:, None], (first + tl.arange(0, K // 4))[None, :]
        n0 = at_the_edge(n0, rows, columns, head, FLAGS)
        n1 = at_the_edge(n1, rows, columns + 32, head, FLAGS)
        n2 = at_the_edge(n2, rows, columns + 64, head, FLAGS)
        n3 = at_the_edge(n3, rows, columns + 96, head, FLAGS)
    joined = tl.join(tl.join(n0, n2), tl.join(n1, n3))
    joined = tl.permute(tl.reshape(joined, (R, K // 16, 4, 2, 2)), (0, 1, 3, 2, 4))
    return tl.reshape(joined, (R, K))


@triton.jit
def _signs(
    key,
    head,
    rows_R,
    first,
    std,
    less,
    R: tl.constexpr,
    K: tl.constexpr,
    FLAGS: tl.constexpr,
    BITS_FIRST: tl.constexpr,
):
    """A thread takes a word: 32 columns of a row. Either way of writing it keeps the bits of a word
    in the registers of one thread, depending on what the tile is used for (see benchmarks/sass.py):
    otherwise the compiler would spread them over threads, each of which draws the word again."""
    seed = tl.load(key)
    layer = tl.load(key + 1).to(tl.uint32)
    zero = tl.zeros((R, K // 32), tl.uint32)
    strip = (first // 32 + tl.arange(0, K // 32)).to(tl.uint32)[None, :] + zero
    c1 = rows_R.to(tl.uint32)[:, None] + zero
    w0, w1, w2, w3 = _philox(seed, strip // 4, c1, zero + head.to(tl.uint32), zero + layer)
    even, odd = tl.where(strip % 4 == 0, w0, w2), tl.where(strip % 4 == 1, w1, w3)
    word = tl.where(strip % 2 == 0, even, odd)
    bit_of_32 = (1 << tl.arange(0, 32)).to(tl.uint32)
    if BITS_FIRST:
        negative = (word[None, :, :] & bit_of_32[:, None, None]) != 0
        a = tl.where(negative, (-std - less)[None, :, :], (std - less)[None, :, :])
        a = tl.permute(a, (1, 2, 0))
    else:
        negative = (word[:, :, None] & bit_of_32[None, None, :]) != 0
        a = tl.where(negative, -std, std) - less[:, :, None]
    a = tl.reshape(a, (R, K))
    if FLAGS is not None:
        columns = (first + tl.arange(0, K))[None, :]
        a = at_the_edge(a, rows_R[:, None], columns, head, FLAGS)
    return a


@triton.jit
def draw(
    key,
    head,
    rows_R,
    first,
    std,
    less,
    R: tl.constexpr,
    K: tl.constexpr,
    FLAGS: tl.constexpr,
    SIGNS: tl.constexpr,
    BITS_FIRST: tl.constexpr,
):
    """Return std W[rows, columns] - less, of shape (R, K) in float32. The columns are those from
    `first`: for normals in `column_order`, for signs one after another. `less` has one column, or
    for signs K // 32. FLAGS: what `at_the_edge` takes; None inside, where there is no edge."""
    if SIGNS:
        w = _signs(key, head, rows_R, first, std, less, R, K, FLAGS, BITS_FIRST)
    else:
        w = _normals(key, head, rows_R, first, std, less, R, K, FLAGS)
    return w


@triton.jit
def order(COUNT: tl.constexpr, NORMALS: tl.constexpr):
    """Return the order of the columns of a step."""
    return column_order(COUNT) if NORMALS else tl.arange(0, COUNT)


@triton.jit
def position(step, NORMALS: tl.constexpr):
    """Return where a step begins. A step of drawn normals takes a part of each strip of its
    group."""
    return step // 128 * 128 + step % 128 // 4 if NORMALS else step


@triton.jit
def _row_means(key, means, m, CAUSAL: tl.constexpr, R: tl.constexpr, K: tl.constexpr):
    n = tl.program_id(1)
    head = n + tl.load(key + 2).to(tl.int32)
    rows_R = tl.program_id(0) * R + tl.arange(0, R)
    if CAUSAL:
        seen_R = rows_R + 1
        inside = tl.program_id(0) * R // 128 * 128
        end = tl.minimum(tl.program_id(0) * R + R, m)
    else:
        seen_R = tl.zeros_like(rows_R) + m
        inside = m // 128 * 128
        end = m
    zero = tl.zeros((R, 1), tl.float32)
    sums = tl.zeros((R, K), tl.float32)
    for step in range(0, inside, K):
        first = position(step, True)
        sums += _normals(key, head, rows_R, first, 1.0, zero, R, K, None)
    for step in range(inside, tl.cdiv(end, 128) * 128, K):
        first = position(step, True)
        drawn = _normals(key, head, rows_R, first, 1.0, zero, R, K, None)
        columns_K = first + column_order(K)
        sums += tl.where(columns_K[None, :] < seen_R[:, None], drawn, 0.0)
    mean_R = tl.sum(sums, 1) / seen_R.to(tl.float32)
    tl.store(means + n.to(tl.int64) * m + rows_R, mean_R, mask=rows_R < m)


@triton.jit
def _minuses(word, seen):
    """Count how many of the lowest `seen` bits are set, or of all 32 if `seen` is larger."""
    low = (1 << tl.minimum(tl.maximum(seen, 0), 31)) - 1
    word = word & tl.where(seen > 31, -1, low).to(tl.uint32)
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    word = word + (word >> 8)
    return ((word + (word >> 16)) & 63).to(tl.int32)


@triton.jit
def _sign_means(key, means, m, CAUSAL: tl.constexpr, R: tl.constexpr, K: tl.constexpr):
    """Compute exact means by counting bits. A thread takes a call, 128 columns of a row."""
    n = tl.program_id(1)
    seed, layer = tl.load(key), tl.load(key + 1).to(tl.uint32)
    head = n + tl.load(key + 2).to(tl.int32)
    rows_R = tl.program_id(0) * R + tl.arange(0, R)
    seen_R = rows_R + 1 if CAUSAL else tl.zeros_like(rows_R) + m
    end = tl.minimum(tl.program_id(0) * R + R, m) if CAUSAL else m
    zero = tl.zeros((R, K // 128), tl.uint32)
    minuses = tl.zeros((R, K // 128), tl.int32)
    for first in range(0, end, K):
        call = first // 128 + tl.arange(0, K // 128)
        c0, c1 = call.to(tl.uint32)[None, :] + zero, rows_R.to(tl.uint32)[:, None] + zero
        w0, w1, w2, w3 = _philox(seed, c0, c1, zero + head.to(tl.uint32), zero + layer)
        seen = seen_R[:, None] - call[None, :] * 128
        minuses += _minuses(w0, seen) + _minuses(w1, seen - 32)
        minuses += _minuses(w2, seen - 64) + _minuses(w3, seen - 96)
    mean_R = (seen_R - 2 * tl.sum(minuses, 1)).to(tl.float32) / seen_R.to(tl.float32)
    tl.store(means + n.to(tl.int64) * m + rows_R, mean_R, mask=rows_R < m)


def row_means(
    key: torch.Tensor, heads: int, length: int, causal: bool, signs: bool
) -> torch.Tensor:
    """As mixing.row_means, for `heads` beginning with the key's."""
    means_NM = torch.empty(heads, length, device=key.device)
    kernel, columns = (_sign_means, SIGN_COLUMNS) if signs else (_row_means, COLUMNS)
    with torch.cuda.device_of(key):  # Triton uses the current device
        kernel[(triton.cdiv(length, ROWS), heads)](key, means_NM, length, causal, ROWS, columns)
    return means_NM
