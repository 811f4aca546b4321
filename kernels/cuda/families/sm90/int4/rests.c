#include "rests.h"

#include "../../../../../proto/number.h"

#include <math.h>

/* Beyond the second f16 has integers alone that are even, or fewer: what is left of such a zero point is all of it. */
enum { CODE_MOST = 15, WHOLE = 2048 };

enum gemm_scale int4_integer_zeros(enum gemm_scale scale) {
  const struct gemm_scale_facts *wanted = gemm_scale_facts(scale);
  for (int mode = 0; mode < GEMM_SCALES; mode++) {
    const struct gemm_scale_facts *facts = gemm_scale_facts((enum gemm_scale)mode);
    if (facts->zeros && !facts->zeros_f16 && facts->n == wanted->n && facts->k == wanted->k &&
        facts->type == wanted->type)
      return (enum gemm_scale)mode;
  }
  return GEMM_SCALE_NONE;
}

uint8_t int4_zero_code(float zero) {
  float nearest = rintf(zero);
  return nearest > WHOLE ? 0 : nearest > CODE_MOST ? CODE_MOST : nearest > 0 ? (uint8_t)nearest : 0;
}

uint32_t int4_rest(uint16_t scale, float zero) {
  return scale | (uint32_t)number_to_f16(zero - (float)int4_zero_code(zero)) << 16;
}

/* -0 is none but itself. */
float int4_rest_zero(uint8_t code, uint32_t rest) {
  float more = number_from_f16((uint16_t)(rest >> 16));
  return code > 0 ? (float)code + more : more;
}
