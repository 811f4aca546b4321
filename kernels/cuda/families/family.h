/* A family of kernels, as a row of the table that serving, tuning and loading walk (table.h). Its folder has what is
 * pure in config.c, the row in family.c, and the kernel with its launcher.
 *
 * Families know problems, calls and variants. Where tensors come from and who waits for the product they do not. */
#pragma once

#include "../../variant.h"
#include "../experts/route.h"
#include "problem.h"

struct backend;
struct backend_needs;
struct backend_weight;
struct CUstream_st;

/* What a product over experts has beside: rows of x and of sums are those of pairs, sorted by expert. */
struct kernel_groups {
  struct experts_route route;
  const int32_t *ids; /* [pairs] */
  int64_t top;
  int tile_rows; /* rows of the route's tiles at most */
  bool y_sorted; /* y, too; else each row is where its pair is, and those of pairs that are skipped are left alone */
};

/* One product on the device. Every pointer is device memory, aligned to 256 bytes but for y. */
struct kernel_call {
  const struct backend_weight *weight;
  int64_t m, m_padded;   /* rows of x; with zeros behind them: FP8 with block scales, a multiple of four */
  enum gemm_type x_type; /* as it came; INT2: of x */
  enum gemm_type y_type, bias_type;
  const void *x;        /* as the kernel reads it: codes, or for F16, BF16 and INT2 x itself; zeros behind K */
  uint64_t x_stride;    /* bytes */
  const float *x_scale; /* [m], BLOCK: [k_padded / 128, m_padded]; NULL where x is no codes */
  const void *bias;     /* [n]; NULL: none */
  void *y;              /* [m, n], aligned to an element; may be mapped host memory */
  uint64_t y_stride;    /* bytes */
  void *const *y_rows;  /* where each row of y begins, for families that write them there; NULL: y_stride apart */
  void *sums;           /* [m_padded, n_padded] of 4 bytes; none for 2-bit weights */
  void *workspace;      /* kernel_device's workspace_bytes */
  void *int2_sums;      /* 2-bit weights in tiles: what int2_many/launch.h wants of its sums */
  struct CUstream_st *stream;
  const struct kernel_groups *groups; /* NULL: the weight has no experts */
  bool follows;                       /* the kernel ahead lets this one start while it runs: W may be read then */
  bool in_row;                        /* and is a product, too, or little work behind one */
  bool resident; /* so much runs beside it that blocks that wait for each other must be launched together */
};

/* What a kernel that does not make y has left in call->sums, [m_padded, n_padded]. */
struct kernel_sums {
  enum gemm_type type; /* GEMM_TYPE_NONE: y is made */
  bool scaled, biased; /* the scales are in them, the bias is */
};

/* What a family foretells of a problem where nothing is known of how long it takes: behind all others. */
#define KERNEL_NO_MODEL 1e18 /* microseconds */
#define KERNEL_LAST 1e19     /* and behind those */

enum { KERNEL_WAITED_FOR = 3 /* blocks of a launch that one of its blocks waits for, at most */ };

struct kernel_family {
  const struct variant_family *variants;

  /* The variant that the family offers to serve a problem with and the microseconds that this takes, or one of the two
   * above. False: it does not offer itself. Pure. */
  bool (*predict)(const struct kernel_problem *problem, struct variant *out, double *us);
  /* Completes what predict has offered; UNSUPPORTED: there is none after all. NULL: nothing is left open. */
  enum status (*complete)(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                          struct error *error);

  /* Adds to a list what is worth being measured, best guess first; `all`: everything that can run. Returns how many
   * there are then, at most `most`. NULL: none is listed. A family whose variants are a library's is asked by another
   * thread than others. */
  int (*candidates)(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out,
                    int count, int most);
  bool lists_last; /* it has many candidates, and stands behind families that have a few */
  /* Writes those that are worth being compiled first, best guess first; as `candidates` otherwise, which leaves them
   * out. NULL: there are none. */
  int (*sweep)(struct backend *backend, const struct kernel_problem *problem, bool all, struct variant *out, int most);
  /* Those that differ from `base` in what is searched second. Returns how many. NULL: none. */
  int (*neighbours)(struct backend *backend, const struct kernel_problem *problem, const struct variant *base, bool all,
                    struct variant *out, int most);
  /* Whether the variant can run, and fills variant->ready. UNSUPPORTED with the reason otherwise, and *nearest is one
   * of the family that can; left as it is where the family takes no such problem. `nearest` may be NULL. NULL itself:
   * every variant can. */
  enum status (*check)(struct backend *backend, const struct kernel_problem *problem, struct variant *variant,
                       struct variant *nearest, struct error *error);
  /* What a variant that check has passed takes beside its tensors; *out is zeros. NULL: not known. */
  void (*needs)(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                struct backend_needs *out);
  /* Compiles the variant's code at run time, which no test has seen: seconds. NULL: its kernels are built in. */
  enum status (*build)(struct backend *backend, const struct kernel_problem *problem, const struct variant *variant,
                       struct error *error);

  /* Queues the product. UNSUPPORTED, with nothing queued, where the variant does not take this call. */
  enum status (*launch)(struct backend *backend, const struct kernel_call *call, const struct variant *variant,
                        struct error *error);
  /* What it leaves; NULL: y. Pure. */
  struct kernel_sums (*leaves)(const struct kernel_problem *problem, const struct variant *variant);
  bool writes_rows; /* where call->y_rows says */
  /* It takes products over experts, and no others; its first parameter is the rows of the tiles that it takes at most,
   * and without any it looks at no tiles. */
  bool experts;
};
