/* What was measured on a GPU, as lines, means and a plot. */
#pragma once

#include "client/tool/command.h"
#include "kernels/variant.h"
#include "proto/gemm.h"
#include "rivals.h"

struct result {
  struct gemm_weight shape;
  int64_t m;
  enum gemm_type x_type, y_type;
  double us, roof_us;
  char kernel[VARIANT_TEXT_BYTES]; /* ours */
  struct {
    const char *name;
    double us, first_us; /* best of the library's candidates, and its own first choice */
    double ratio;        /* us / ours, of neighbours in time */
  } rivals[RIVALS_MOST];
  int rival_count;
};

struct results {
  struct result *rows; /* owned */
  int count, room;
};

MUST_CHECK enum status results_add(struct results *results, const struct result *row, struct error *error);
void results_free(struct results *results);
void result_print(const struct tool_call *call, const struct result *row);
/* Geometric means of the ratios, by format, rival and M. */
void results_print_means(const struct tool_call *call, const struct results *results);
/* An SVG: for each format, time over roofline by M, a line a system; geometric means over shapes. */
MUST_CHECK enum status results_plot(const struct results *results, const char *path, struct error *error);

/* Of rows of this format and M (0: any): theirs / ours of a rival, or with a name of NULL roof / ours. Returns how
 * many there are. */
struct mean {
  double geometric, worst;
  int count;
};
struct mean results_mean(const struct results *results, enum gemm_format format, int64_t m, const char *rival);
