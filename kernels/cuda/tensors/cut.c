#include "cut.h"

#include "product.h"

enum { STEP = 64 /* of K, that every kernel's steps divide */ };
#define PIECE_NS 1e6

static int64_t pieces_of(int64_t all, int64_t each) {
  return (all + each - 1) / each;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Half of it, as whole tiles. */
static int64_t half_of(int64_t size) {
  int64_t half = (size / 2 + TENSORS_ROW_PAD - 1) / TENSORS_ROW_PAD * TENSORS_ROW_PAD;
  return half < size ? half : size;
}

/* The partial sums of one slice may take a quarter. */
static void cut_y(const struct tensors_cut_problem *p, struct tensors_cut *out) {
  out->rows = p->m;
  out->columns = p->n;
  while (tensors_partial_bytes(out->rows, out->columns, 1) > p->bytes / 4 &&
         (out->rows > TENSORS_ROW_PAD || out->columns > TENSORS_ROW_PAD)) {
    if (out->rows >= out->columns)
      out->rows = half_of(out->rows);
    else
      out->columns = half_of(out->columns);
  }
}

static double piece_ns(const struct tensors_cut_problem *p, double rows, double columns, double depth) {
  double x = 2 * rows * depth, w = 2 * columns * depth, computing = 2 * rows * columns * depth / p->flops_per_ns;
  double reading = (x + w) / p->bytes_per_ns;
  double copying = ((p->x_far ? x : 0) + (p->w_far ? w : 0)) / p->copied_per_ns;
  return (computing > reading ? computing : reading) + copying;
}

struct tensors_cut tensors_cut(const struct tensors_cut_problem *p) {
  struct tensors_cut out = {.slices = 1};
  cut_y(p, &out);
  double one = piece_ns(p, (double)out.rows, (double)out.columns, STEP);
  int64_t by_time = (int64_t)(PIECE_NS / one), far = (p->x_far ? out.rows : 0) + (p->w_far ? out.columns : 0);
  int64_t by_bytes = far > 0 ? (int64_t)(p->bytes / 4) / (2 * STEP * far) : by_time;
  int64_t steps = least(least(by_time, by_bytes), pieces_of(p->k, STEP));
  int64_t runs = pieces_of(pieces_of(p->k, STEP), steps > 1 ? steps : 1);
  out.depth = least(p->k, pieces_of(pieces_of(p->k, STEP), runs) * STEP);
  int64_t room = (int64_t)(p->bytes / 2 / tensors_partial_bytes(out.rows, out.columns, 1));
  out.slices = (int)least(least(p->slices, room > 1 ? room : 1), pieces_of(out.depth, STEP));
  out.pieces = p->batch * pieces_of(p->m, out.rows) * pieces_of(p->n, out.columns) * pieces_of(p->k, out.depth);
  return out;
}

struct tensors_piece tensors_piece(const struct tensors_cut_problem *p, const struct tensors_cut *cut, int64_t index) {
  int64_t runs = pieces_of(p->k, cut->depth), across = pieces_of(p->n, cut->columns);
  int64_t down = pieces_of(p->m, cut->rows), run = index % runs;
  struct tensors_piece out = {.product = index / runs / across / down,
                              .row = index / runs / across % down * cut->rows,
                              .column = index / runs % across * cut->columns,
                              .k = run * cut->depth,
                              .first = run == 0,
                              .last = run == runs - 1};
  out.rows = least(cut->rows, p->m - out.row);
  out.columns = least(cut->columns, p->n - out.column);
  out.depth = least(cut->depth, p->k - out.k);
  return out;
}

double tensors_cut_ns(const struct tensors_cut_problem *p) {
  return (double)p->batch * piece_ns(p, (double)p->m, (double)p->n, (double)p->k);
}
