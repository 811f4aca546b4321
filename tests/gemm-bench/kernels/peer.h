/* A library that computes the same products, to be measured beside a backend in the same run. */
#pragma once

#include "proto/gemm.h"

struct peer;        /* an opened library */
struct peer_weight; /* one W in the library's own form */

struct peer_ops {
  const char *backend; /* whose peer it is; the first of a backend is taken where nobody names one */
  const char *name;
  /* Opens the library at `path`, NULL: the usual names (of the first), for so many threads. */
  struct peer *(*open)(const char *path, int threads, struct error *error);
  void (*close)(struct peer *peer);
  /* What the library computes on this machine where we compute with this format: "s8", "bf16", "f32"; NULL: nothing
   * alike. */
  const char *(*type)(const struct peer *peer, enum gemm_format format);
  /* Of one W; 0: nothing alike for this shape. */
  uint64_t (*bytes)(struct peer *peer, enum gemm_format format, int64_t n, int64_t k);
  /* Room for `copies` W of [n, k], products with m rows. NULL, UNSUPPORTED where the library has none of this kind. Not
   * where `bytes` is 0. */
  struct peer_weight *(*prepare)(struct peer *peer, enum gemm_format format, int64_t m, int64_t n, int64_t k,
                                 int copies, struct error *error);
  /* One product with copy `copy`, y included. False where it failed. */
  bool (*run)(struct peer_weight *weight, int copy);
  void (*release)(struct peer_weight *weight);
};

/* NULL at the end. */
extern const struct peer_ops *const peer_table[];
