/* out = A v or A^T v of the stored form (stored.py), on a CPU: one product with a triangle for each head.

   A product of whole matrices would do twice the work, and one by strips copies v and out, packs A anew for
   each strip and multiplies whole blocks on the diagonal. Here a tile of ROWS x COLUMNS sums is kept in
   registers and goes over no more of A than it sees; A is read where it is, and out is written where it
   belongs. The loops around the tile are those of any fast product (Goto and van de Geijn, 2008): v lies
   packed in panels of COLUMNS; DEPTH of their rows fit the first cache, beside BLOCK rows of A, which fit the
   second.

   Every document is multiplied with the corner of A that is as large as it is. The columns of a head are those
   of all documents, the longest first, side by side: column c is element c % width of document c / width.
   Whole rows of a batch are documents too.

   What is multiplied is a word of 32 bits: one float, or in bfloat16 two rows of v with two columns of A. The
   sums are floats. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

/* Sums that fill the registers: 24 of 32, or 12 of 16. */
#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 12 };
#elif defined(__AVX2__)
enum { LANES = 8, ROWS = 6 };
#else
enum { LANES = 4, ROWS = 6 };
#endif
enum { VECTORS = 2, COLUMNS = VECTORS * LANES, DEPTH = 8192 / COLUMNS, BLOCK = 48 };
/* Columns that a thread takes at a time. A is read once for all of them, mostly from memory: many, unless threads
   would be left without work. */
enum { WIDE = 256, NARROW = 64, PANELS = WIDE / COLUMNS };

typedef int32_t word __attribute__((may_alias));
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float tile[ROWS][COLUMNS];
typedef word panel[][COLUMNS];

#define UNROLLED _Pragma("GCC unroll 16") for
#define INLINED static inline __attribute__((always_inline))

typedef int32_t entry[4]; /* of a document_table (documents.py): block, row of the batch, first token, size */

typedef struct {
  const char *a, *v;
  char *out;
  const entry *documents; /* NULL: whole rows. Of a table, see find_documents */
  long count;             /* of documents, or rows */
  long length, heads, width;
  long a_head, a_row, v_batch, v_row, v_head; /* strides; out is contiguous (batch, length, heads, width) */
  long bfloat16, add_v, transposed, threads;
} product;

static long least(long a, long b) { return a < b ? a : b; }
static long most(long a, long b) { return a > b ? a : b; }

static long bytes(const product *p) { return p->bfloat16 ? 2 : 4; }
/* Words of so many rows of v, and of so many columns of A. */
static long words_of(const product *p, long rows) { return p->bfloat16 ? (rows + 1) / 2 : rows; }

static long size_of(const product *p, long document) {
  return p->documents ? p->documents[document][3] : p->length;
}
static long row_of(const product *p, long document) { return p->documents ? p->documents[document][1] : document; }
static long first_of(const product *p, long document) { return p->documents ? p->documents[document][2] : 0; }

/* Columns from c on that are elements of one document, at most up to `end`. */
static long run_of(const product *p, long c, long end) { return least(p->width - c % p->width, end - c); }

/* Element c of row 0 of its document in v. */
static const char *v_of(const product *p, long head, long c) {
  long document = c / p->width;
  return p->v + bytes(p) * (row_of(p, document) * p->v_batch + first_of(p, document) * p->v_row +
                            head * p->v_head + c % p->width);
}

/* Columns c to c_end of v as a panel. What there is not is zero: at the end of a document and of the columns. */
static void pack(const product *p, long head, long c, long c_end, panel to) {
  long count = words_of(p, size_of(p, c / p->width));
  if (run_of(p, c, c_end) < COLUMNS) memset(to, 0, count * sizeof(*to));
  for (long at = c; at < c_end; at += run_of(p, at, c_end)) {
    long run = run_of(p, at, c_end), size = size_of(p, at / p->width), step = p->v_row;
    if (p->bfloat16) {
      const uint16_t *from = (const uint16_t *)v_of(p, head, at);
      for (long k = 0; k < size / 2; k++, from += 2 * step) {
        for (long x = 0; x < run; x++) to[k][at - c + x] = from[x] | (uint32_t)from[step + x] << 16;
      }
      if (size % 2) {
        for (long x = 0; x < run; x++) to[size / 2][at - c + x] = from[x];
      }
    } else {
      const float *from = (const float *)v_of(p, head, at);
      for (long k = 0; k < size; k++, from += step) {
        if (run == COLUMNS) {
          memcpy(to[k], from, sizeof(*to));
        } else {
          memcpy(&to[k][at - c], from, 4 * run);
        }
      }
    }
  }
}

/* sum + a x, or with pairs sum + a_0 x_0 + a_1 x_1 */
INLINED vector multiply(vector sum, words a, words x, int pairs) {
  if (!pairs) return sum + (vector)a * (vector)x;
#if defined(__AVX512BF16__)
  return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)x);
#else
  return sum + (vector)(a << 16) * (vector)(x << 16) + (vector)(a >> 16 << 16) * (vector)(x >> 16 << 16);
#endif
}

/* sums_i = sum over k of a_i[k] v[k], or what they were and that. */
INLINED void multiply_tile(const word *const a_rows[ROWS], const panel v, long count, tile sums, int add, int pairs) {
  const word *a[ROWS];
  vector s[ROWS][VECTORS];
  UNROLLED(int i = 0; i < ROWS; i++) {
    a[i] = a_rows[i];
    UNROLLED(int j = 0; j < VECTORS; j++) s[i][j] = add ? *(vector *)&sums[i][j * LANES] : (vector){0};
  }
  for (long k = 0; k < count; k++) {
    const words *x = (const words *)v[k];
    UNROLLED(int i = 0; i < ROWS; i++) {
      words broadcast = (words){0} + a[i][k];
      UNROLLED(int j = 0; j < VECTORS; j++) s[i][j] = multiply(s[i][j], broadcast, x[j], pairs);
    }
  }
  UNROLLED(int i = 0; i < ROWS; i++) {
    UNROLLED(int j = 0; j < VECTORS; j++) *(vector *)&sums[i][j * LANES] = s[i][j];
  }
}

/* ROWS rows of one panel, with rows k0 to k1 of it (in words). A tile sees up to ROWS more than some of its rows
   do. There A and A^T are zero, also where a row of the matrix has come to its other half: that begins (A^T), or
   ends (A), with a strip's zeros. */
_Static_assert(ROWS <= 64, "a tile must not see beyond the zeros of a strip (_STRIP in stored.py)");
_Static_assert(ROWS % 2 == 0 && BLOCK % ROWS == 0, "a tile begins with a word");
static void add_tile(const product *p, long head, long row, long size, long k0, long k1, const panel v, tile sums) {
  long first = p->transposed ? words_of(p, row) : 0;
  long from = most(first, k0), to = least(words_of(p, p->transposed ? size : least(row + ROWS, size)), k1);
  if (from >= to) return;
  const word *a[ROWS];
  for (long i = 0; i < ROWS; i++) { /* below the last row: that one again, which is not put */
    a[i] = (const word *)(p->a + bytes(p) * (head * p->a_head + least(row + i, size - 1) * p->a_row)) + from;
  }
  if (p->bfloat16) {
    multiply_tile(a, v + from, to - from, sums, from > first, 1);
  } else {
    multiply_tile(a, v + from, to - from, sums, from > first, 0);
  }
}

static float widened(uint16_t bits) {
  uint32_t all = (uint32_t)bits << 16;
  float number;
  memcpy(&number, &all, 4);
  return number;
}

/* To the nearest, and to even in between, as torch does. */
static uint16_t narrowed(float number) {
  uint32_t all;
  memcpy(&all, &number, 4);
  return number != number ? 0x7fc0 : (all + 0x7fff + (all >> 16 & 1)) >> 16;
}

/* Write the sums of panel n, columns c to c_end, from row `row` on. */
static void put(const product *p, long head, long row, long c, long c_end, tile (*sums)[PANELS], long n) {
  for (long at = c, run; at < c_end; at += run) {
    run = run_of(p, at, c_end);
    long document = at / p->width, rows = least(size_of(p, document) - row, BLOCK), step = p->heads * p->width;
    long place = row_of(p, document) * p->length + first_of(p, document) + row;
    char *out = p->out + bytes(p) * (place * step + head * p->width + at % p->width);
    const char *v = v_of(p, head, at) + bytes(p) * row * p->v_row;
    for (long i = 0; i < rows; i++, out += bytes(p) * step, v += bytes(p) * p->v_row) {
      const float *sum = &sums[i / ROWS][n][i % ROWS][at - c];
      if (p->bfloat16) {
        const uint16_t *x = (const uint16_t *)v;
        for (long e = 0; e < run; e++) ((uint16_t *)out)[e] = narrowed(sum[e] + (p->add_v ? widened(x[e]) : 0));
      } else if (p->add_v) {
        for (long e = 0; e < run; e++) ((float *)out)[e] = sum[e] + ((const float *)v)[e];
      } else if (run == COLUMNS) {
        memcpy(out, sum, 4 * COLUMNS);
      } else {
        memcpy(out, sum, 4 * run);
      }
    }
  }
}

/* Room for packed words, which a thread keeps: memory that is new each time costs more than it holds. */
static word (*room_for(long rows))[COLUMNS] {
  static _Thread_local word (*room)[COLUMNS];
  static _Thread_local long has;
  if (has < rows) {
    free(room);
    room = aligned_alloc(64, (rows * sizeof(*room) + 63) / 64 * 64);
    has = rows;
  }
  return room;
}

/* Some columns of a head, at most WIDE. */
static void mix_columns(const product *p, long head, long c, long c_end) {
  long panels = (c_end - c + COLUMNS - 1) / COLUMNS, longest = size_of(p, c / p->width);
  long depth = words_of(p, longest);
  word(*packed)[COLUMNS] = room_for(panels * depth);
  tile sums[BLOCK / ROWS][PANELS] __attribute__((aligned(64)));
  long sizes[PANELS];
  for (long n = 0; n < panels; n++) {
    long start = c + n * COLUMNS;
    sizes[n] = size_of(p, start / p->width);
    pack(p, head, start, least(start + COLUMNS, c_end), packed + n * depth);
  }
  for (long row = 0; row < longest; row += BLOCK) {
    long k = p->transposed ? words_of(p, row) : 0;
    long k_end = words_of(p, p->transposed ? longest : least(row + BLOCK, longest));
    for (; k < k_end; k += DEPTH) {
      for (long n = 0; n < panels && row < sizes[n]; n++) {
        for (long i = 0; i < BLOCK / ROWS && row + i * ROWS < sizes[n]; i++) {
          add_tile(p, head, row + i * ROWS, sizes[n], k, least(k + DEPTH, k_end), packed + n * depth, sums[i][n]);
        }
      }
    }
    for (long n = 0; n < panels; n++) {
      put(p, head, row, c + n * COLUMNS, least(c + (n + 1) * COLUMNS, c_end), sums, n);
    }
  }
}

/* In a table, entries of late blocks come first. So those of block 0, one for each document, are the last. They
   are preceded and followed by some of size 0, which fill up. */
static void find_documents(product *p) {
  const entry *entries = p->documents + 1;
  long end = p->documents[0][0];
  while (end > 0 && entries[end - 1][3] == 0) end--;
  long first = end;
  while (first > 0 && entries[first - 1][3] > 0 && entries[first - 1][0] == 0) first--;
  p->documents = entries + first;
  p->count = end - first;
}

void triangle_mix(const product *given) {
  product all = *given, *p = &all;
  if (p->documents) find_documents(p);
  long columns = p->count * p->width;
  if (columns * p->heads == 0) return;
  long parts = least(4 * p->threads / p->heads, (columns + NARROW - 1) / NARROW); /* of a head */
  parts = most(parts, (columns + WIDE - 1) / WIDE);
  long panels = (columns + COLUMNS - 1) / COLUMNS, wide = (panels + parts - 1) / parts * COLUMNS;
#pragma omp parallel for schedule(dynamic) num_threads(p->threads)
  for (long part = 0; part < p->heads * parts; part++) { /* long documents first */
    long c = part / p->heads * wide;
    if (c < columns) mix_columns(p, part % p->heads, c, least(c + wide, columns));
  }
}
