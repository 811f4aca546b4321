/* The same product inside one process, by the program gemm-inprocess. */
#pragma once

#include "serve.h"

/* Medians. */
struct compare {
  double best_us;
  double obvious_us, kernel_us; /* 0: not on this backend; of a plan: its kernels one after the other */
  double plan_us;               /* a plan on the device, by itself; 0: it was a product */
};

/* Runs the program that lies beside this one, or on the PATH. Says what went wrong. */
enum tool_exit compare_measure(const struct tool_call *call, const struct serve_settings *settings,
                               struct compare *out);
