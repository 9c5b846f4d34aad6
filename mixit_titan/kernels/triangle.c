/* out = A v or A^T v of the stored form (stored.py), on a CPU: one product with a triangle for each head.

   A product of whole matrices would do twice the work, and one by strips copies v and out, packs A anew for
   each strip and multiplies whole blocks on the diagonal. Here a tile of ROWS x COLUMNS sums is kept in
   registers and goes over no more of A than it sees; A is read where it is, and out is written where it
   belongs. The loops around the tile are those of any fast product (Goto and van de Geijn, 2008): DEPTH rows
   of v lie packed in panels of COLUMNS, one of which fits the first cache, beside BLOCK rows of A, which fit
   the second.

   The columns of a head are those of all sequences of the batch, side by side: column c is element c % width
   of sequence c / width. */

#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 12 };
#elif defined(__AVX2__)
enum { LANES = 8, ROWS = 6 };
#else
enum { LANES = 4, ROWS = 6 };
#endif
enum { VECTORS = 2, COLUMNS = VECTORS * LANES, WIDE = 64, PANELS = WIDE / COLUMNS, DEPTH = 8192 / COLUMNS, BLOCK = 48 };

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float panel[DEPTH][COLUMNS];

#define UNROLLED _Pragma("GCC unroll 16") for

typedef struct {
  const float *a, *v;
  float *out;
  long batch, length, heads, width;
  long a_head, a_row, v_batch, v_row, v_head; /* strides; out is contiguous (batch, length, heads, width) */
  long transposed, threads;
} product;

static long least(long a, long b) { return a < b ? a : b; }
static long most(long a, long b) { return a > b ? a : b; }

/* Columns c to c + run of a head that are elements of one sequence, at most up to `end`. */
static long run_of(const product *p, long c, long end) { return least(p->width - c % p->width, end - c); }

/* Rows k to k_end of v, columns c to c_end of a head. Columns that there are not are zero: what is there by
   chance may be slow to multiply. */
static void pack(const product *p, long head, long k, long k_end, long c, long c_end, panel to) {
  if (c_end < c + COLUMNS) memset(to, 0, sizeof(panel));
  for (long at = c; at < c_end; at += run_of(p, at, c_end)) {
    long run = run_of(p, at, c_end);
    const float *from = p->v + at / p->width * p->v_batch + head * p->v_head + at % p->width;
    for (long row = k; row < k_end; row++) {
      float *target = &to[row - k][at - c];
      if (run == COLUMNS) {
        memcpy(target, from + row * p->v_row, sizeof(float) * COLUMNS);
      } else {
        for (long x = 0; x < run; x++) target[x] = from[row * p->v_row + x];
      }
    }
  }
}

/* sum_i = sum over k of rows_i[k] v[k] */
static void multiply(const float *const rows[ROWS], const panel v, long k, long k_end, vector sum[ROWS][VECTORS]) {
  const float *a[ROWS];
  vector s[ROWS][VECTORS];
  UNROLLED(int i = 0; i < ROWS; i++) {
    a[i] = rows[i];
    UNROLLED(int j = 0; j < VECTORS; j++) s[i][j] = (vector){0};
  }
  for (; k < k_end; k++) {
    const vector *x = (const vector *)v[k];
    UNROLLED(int i = 0; i < ROWS; i++) {
      UNROLLED(int j = 0; j < VECTORS; j++) s[i][j] += a[i][k] * x[j];
    }
  }
  UNROLLED(int i = 0; i < ROWS; i++) {
    UNROLLED(int j = 0; j < VECTORS; j++) sum[i][j] = s[i][j];
  }
}

/* Write a tile of sums to out, or add it to what is there. */
static void put(const product *p, long head, long row, long c, long c_end, vector sum[ROWS][VECTORS], int add) {
  for (long i = 0; i < ROWS && row + i < p->length; i++) {
    for (long at = c; at < c_end; at += run_of(p, at, c_end)) {
      long run = run_of(p, at, c_end), place = at / p->width * p->length + row + i;
      float *to = p->out + (place * p->heads + head) * p->width + at % p->width;
      if (run == COLUMNS) {
        vector *whole = (vector *)to;
        UNROLLED(int j = 0; j < VECTORS; j++) whole[j] = add ? whole[j] + sum[i][j] : sum[i][j];
      } else {
        const float *from = (const float *)sum[i] + (at - c);
        for (long x = 0; x < run; x++) to[x] = add ? to[x] + from[x] : from[x];
      }
    }
  }
}

/* Row tiles from `row` to `row_end` of one panel, with rows k0 to k1 of v, which the panel has.
   A tile sees up to ROWS more than some of its rows do. There A and A^T are zero, also where a row of the
   matrix has come to its other half: that begins (A^T), or ends (A), with a strip's zeros. */
_Static_assert(ROWS <= 128, "a tile must not see beyond the zeros of a strip (_STRIP in stored.py)");
static void tiles(const product *p, long head, long row, long row_end, long k0, long k1, long c, long c_end,
                  const panel v) {
  for (; row < row_end; row += ROWS) {
    long first = p->transposed ? row : 0, end = p->transposed ? p->length : row + ROWS; /* what it sees */
    long from = most(first, k0), to = least(end, k1);
    const float *rows[ROWS];
    for (long i = 0; i < ROWS; i++) { /* below the last row: that one again, which is not put */
      rows[i] = p->a + head * p->a_head + least(row + i, p->length - 1) * p->a_row + k0;
    }
    vector sum[ROWS][VECTORS];
    multiply(rows, v, from - k0, to - k0, sum);
    put(p, head, row, c, c_end, sum, from > first);
  }
}

/* Some columns of a head, at most WIDE. */
static void mix_columns(const product *p, long head, long c, long c_end) {
  panel packed[PANELS] __attribute__((aligned(64)));
  for (long k = 0; k < p->length; k += DEPTH) {
    long k_end = least(k + DEPTH, p->length);
    for (long n = 0; c + n * COLUMNS < c_end; n++) {
      pack(p, head, k, k_end, c + n * COLUMNS, least(c + (n + 1) * COLUMNS, c_end), packed[n]);
    }
    long row = p->transposed ? 0 : k, row_end = p->transposed ? k_end : p->length;
    for (; row < row_end; row += BLOCK) {
      for (long n = 0; c + n * COLUMNS < c_end; n++) {
        tiles(p, head, row, least(row + BLOCK, row_end), k, k_end, c + n * COLUMNS,
              least(c + (n + 1) * COLUMNS, c_end), packed[n]);
      }
    }
  }
}

void triangle_mix(const product *p) {
  long columns = p->batch * p->width, parts = (columns + WIDE - 1) / WIDE;
#pragma omp parallel for schedule(dynamic) num_threads(p->threads)
  for (long part = 0; part < p->heads * parts; part++) {
    long c = part % parts * WIDE;
    mix_columns(p, part / parts, c, least(c + WIDE, columns));
  }
}
