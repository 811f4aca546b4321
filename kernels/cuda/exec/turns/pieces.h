/* How products that take long are cut: into runs of rows, and where W comes with the product into panels of its rows,
 * so that none of the pieces holds the device for long. Pure; roughly, and rather too long than too short. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What the device does at most; 0: not known. */
struct pieces_device {
  uint64_t operations_per_s, bytes_per_s;
};

/* A product, or a sequence of such, as far as its time goes. */
struct pieces_work {
  double operations_a_row; /* of x */
  uint64_t weight_bytes;   /* that every run of rows reads */
  uint64_t copied_bytes;   /* of W, once, by way of the link to the host */
  uint64_t row_bytes;      /* of x and y */
  bool far;                /* x or y lies in the host's memory */
};

uint64_t pieces_predict_ns(const struct pieces_device *device, const struct pieces_work *work, int64_t rows);

/* Rows of a piece of so much work: as many as `budget_ns` allows, about equal, 1..rows. Where even few take longer,
 * those for which W is read about as long as multiplied with, or as long as x and y of these rows move. */
int64_t pieces_rows(const struct pieces_device *device, const struct pieces_work *work, int64_t rows,
                    uint64_t budget_ns);

/* Rows of a panel of W, which is [n, ..] with rows of `row_bytes`, so that it takes `bytes`, 1..n, about equal; more
 * than one panel has multiples of GEMM_GROUP where that many fit. */
int64_t pieces_panel(int64_t n, uint64_t row_bytes, uint64_t bytes);
