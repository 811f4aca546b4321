/* What a tile of int4/layout.h is made of, by the weight's format and scales. Pure. */
#pragma once

#include "../../../../../proto/gemm.h"
#include "layout.h"

struct int4_form {
  bool e2m1, bytes, zeros; /* bytes: INT4A8 */
  int groups;              /* of K in a tile; NVFP4: INT4_GROUPS_MOST */
  int zeros_at, half_bytes;
};

/* Formats of such tiles whose x stays as it comes. */
static inline bool int4_form_keeps_x(enum gemm_format format) {
  return gemm_is_packed(format) && !gemm_is_int2(format) && !gemm_quantizes_x(format);
}

static inline struct int4_form int4_form_of(enum gemm_format format, enum gemm_scale scale) {
  const struct gemm_scale_facts *facts = gemm_scale_facts(scale);
  struct int4_form form = {
      .e2m1 = gemm_format_facts(format)->element == GEMM_E2M1,
      .bytes = format == GEMM_FORMAT_INT4A8,
      .zeros = facts->zeros,
      .groups = facts->k > 0 ? (int)(GEMM_GROUP / facts->k) : 1,
  };
  form.zeros_at = INT4_HALF_SCALES + INT4_HALF_ROWS * form.groups * (form.e2m1 ? 1 : 2);
  form.half_bytes = form.zeros_at + (form.zeros ? INT4_HALF_ROWS * form.groups : 0);
  return form;
}
