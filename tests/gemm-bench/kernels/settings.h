/* What gemm-bench kernels is asked for. */
#pragma once

#include "client/tool/command.h"
#include "kernels/backend.h"

enum { SETTINGS_ITEMS = 16, SETTINGS_CASES = 64, SETTINGS_ROUNDS = 99, SETTINGS_EXPERTS = 512 };

/* Every format with every shape and every M. */
struct cases {
  enum gemm_format formats[SETTINGS_ITEMS];
  int64_t n[SETTINGS_ITEMS], k[SETTINGS_ITEMS], m[SETTINGS_ITEMS];
  int format_count, shape_count, m_count;
};

enum settings_kernel { KERNEL_OWN /* that the backend takes by itself */, KERNEL_TUNED, KERNEL_ALL };

struct settings {
  const struct backend_ops *ops;
  struct backend_config config;
  const char *peer; /* path, "none", or NULL */
  struct cases cases[SETTINGS_CASES];
  int case_count;
  int rounds;
  uint64_t burst_ns;   /* a side's turn */
  uint64_t cold_bytes; /* copies of a weight are taken in turn, so many bytes of them */
  enum gemm_scale scale;
  enum gemm_type x_type, y_type; /* NONE: what is usual for the format and the backend */
  enum settings_kernel kernel;
  const char *family; /* whose kernels are measured, or NULL: any */
  bool dependent, quantizer;
  bool processor_time;  /* of the one thread, and the least of the rounds, in place of the clock's and medians */
  bool bias;            /* of every product */
  const char *plot;     /* file, or NULL */
  int64_t experts, top; /* of each weight, and that a row takes; 0: dense products */
  double skew;          /* of the experts' odds: s of Zipf's law */
  bool sorted;          /* rows lie sorted by expert, as the kernel reads them */
};

/* False after having said what is wrong. `ops` is set before: some defaults depend on the backend. */
bool settings_parse(const struct tool_call *call, struct settings *settings);
enum gemm_scale settings_scale(const struct settings *settings, enum gemm_format format);
/* Copies of a weight of so many bytes. */
int settings_copies(const struct settings *settings, uint64_t bytes);
/* Bytes of an arena for the largest of all products. */
uint64_t settings_arena_bytes(const struct settings *settings);
