#include "pieces.h"

#include "staging.h"

/* Kernels reach a third of the device's operations at least, and half of its memory's rate; a link of 16 lanes of PCIe
 * 4 delivers 20 GB/s. Where a device is not known, it is taken for a small one. */
#define OPERATIONS_SHARE 3
#define BYTES_SHARE 2
#define OPERATIONS_LEAST 3e13
#define BYTES_LEAST 3e11
#define LINK_BYTES_PER_S 2e10

enum { ROWS_LEAST = GEMM_GROUP };

static double or_least(uint64_t rate, double least) {
  return rate > 0 ? (double)rate : least;
}

static double work_ns(const struct pieces_device *device, const struct pieces_work *work, double rows) {
  double operations = or_least(device->operations_per_s, OPERATIONS_LEAST) / OPERATIONS_SHARE;
  double bytes = or_least(device->bytes_per_s, BYTES_LEAST) / BYTES_SHARE;
  double multiplies = rows * work->operations_a_row / operations, reads = (double)work->weight_bytes / bytes;
  double moves = rows * (double)work->row_bytes / (work->far ? LINK_BYTES_PER_S : bytes);
  return 1e9 * ((multiplies > reads ? multiplies : reads) + moves);
}

uint64_t pieces_predict_ns(const struct pieces_device *device, const struct pieces_work *work, int64_t rows) {
  double ns = work_ns(device, work, (double)rows) + 1e9 * (double)work->copied_bytes / LINK_BYTES_PER_S;
  return ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18;
}

int64_t pieces_rows(const struct pieces_device *device, const struct pieces_work *work, int64_t rows,
                    uint64_t budget_ns) {
  int64_t low = rows < ROWS_LEAST ? rows : ROWS_LEAST, high = rows;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (work_ns(device, work, (double)middle) <= (double)budget_ns)
      low = middle;
    else
      high = middle - 1;
  }
  low = low < rows && low > GEMM_GROUP ? low / GEMM_GROUP * GEMM_GROUP : low;
  return staging_go(rows, low);
}

int64_t pieces_panel(int64_t n, uint64_t row_bytes, uint64_t bytes) {
  uint64_t fit = bytes / row_bytes;
  int64_t most = fit < 1 ? 1 : fit < (uint64_t)n ? (int64_t)fit : n;
  most = most < n && most > GEMM_GROUP ? most / GEMM_GROUP * GEMM_GROUP : most;
  return staging_go(n, most);
}
