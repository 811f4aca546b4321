/* Types of ggml's tensors as gemmd's formats: Q8_0 as INT8 with a scale a row, Q4_0 as INT4A8 and TQ2_0 as INT2A8 (the
 * same codes and scales, rows in 8 bits as ggml has them), F16 and BF16 as they are; and rows of f32 as these want
 * them. */
#include "gemmd_ggml.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const struct {
  enum gemmd_format format;
  enum gemmd_type x_type;
  enum gemmd_scale scale;
} kinds[TYPES] = {[GGML_TYPE_Q8_0] = {GEMMD_FORMAT_INT8, GEMMD_F32, GEMMD_SCALE_DEFAULT},
                  [GGML_TYPE_Q4_0] = {GEMMD_FORMAT_INT4A8, GEMMD_F32, GEMMD_SCALE_GROUP32},
                  [GGML_TYPE_TQ2_0] = {GEMMD_FORMAT_INT2A8, GEMMD_F32, GEMMD_SCALE_DEFAULT},
                  [GGML_TYPE_F16] = {GEMMD_FORMAT_F16, GEMMD_F16, GEMMD_SCALE_DEFAULT},
                  [GGML_TYPE_BF16] = {GEMMD_FORMAT_BF16, GEMMD_BF16, GEMMD_SCALE_DEFAULT}};

bool type_supported(enum ggml_type type) {
  return kinds[type].x_type != GEMMD_TYPE_NONE;
}

enum gemmd_format type_format(enum ggml_type type) {
  return kinds[type].format;
}

enum gemmd_scale type_scale(enum ggml_type type) {
  return kinds[type].scale;
}

enum gemmd_type type_x(enum ggml_type type) {
  return kinds[type].x_type;
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static int64_t convert_f16(const float *from, ggml_fp16_t *to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}
#endif

void rows_convert(const float *from, void *to, int64_t count, enum gemmd_type type) {
  int64_t done = 0;
  if (type == GEMMD_BF16) {
    ggml_fp32_to_bf16_row(from, to, count);
    return;
  }
#if defined(__x86_64__)
  if (__builtin_cpu_supports("f16c"))
    done = convert_f16(from, to, count);
#endif
  ggml_fp32_to_fp16_row(from + done, (ggml_fp16_t *)to + done, count - done);
}
