#include "pieces.h"

#include "../staging.h"

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

static double bytes_rate(const struct pieces_device *device) {
  return or_least(device->bytes_per_s, BYTES_LEAST) / BYTES_SHARE;
}

/* W is read so long, whatever the rows. */
static double reads_ns(const struct pieces_device *device, const struct pieces_work *work) {
  return 1e9 * (double)work->weight_bytes / bytes_rate(device);
}

/* x and y of one row move so long. */
static double move_ns(const struct pieces_device *device, const struct pieces_work *work) {
  return 1e9 * (double)work->row_bytes / (work->far ? LINK_BYTES_PER_S : bytes_rate(device));
}

static double work_ns(const struct pieces_device *device, const struct pieces_work *work, double rows) {
  double operations = or_least(device->operations_per_s, OPERATIONS_LEAST) / OPERATIONS_SHARE;
  double multiplies = 1e9 * rows * work->operations_a_row / operations, reads = reads_ns(device, work);
  return (multiplies > reads ? multiplies : reads) + rows * move_ns(device, work);
}

/* Fewer rows take hardly less time, but where their own bytes are what takes it. */
static int64_t rows_least(const struct pieces_device *device, const struct pieces_work *work, uint64_t budget_ns) {
  double reads = reads_ns(device, work), each = move_ns(device, work);
  double worth = (reads > (double)budget_ns ? reads : (double)budget_ns) / (each > 0 ? each : 1);
  return worth < 1 ? 1 : worth < ROWS_LEAST ? (int64_t)worth : ROWS_LEAST;
}

uint64_t pieces_predict_ns(const struct pieces_device *device, const struct pieces_work *work, int64_t rows) {
  double ns = work_ns(device, work, (double)rows) + 1e9 * (double)work->copied_bytes / LINK_BYTES_PER_S;
  return ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18;
}

int64_t pieces_rows(const struct pieces_device *device, const struct pieces_work *work, int64_t rows,
                    uint64_t budget_ns) {
  int64_t least = rows_least(device, work, budget_ns), low = rows < least ? rows : least, high = rows;
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
