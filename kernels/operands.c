#include "operands.h"

#include "../proto/number.h"

#include <string.h>

/* splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), one value a place. */
static uint64_t mix(uint64_t place) {
  uint64_t z = (place + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

float operands_uniform(uint64_t place) {
  return (float)((double)(mix(place) >> 11) * 0x1p-52 - 1);
}

float operands_value(int kind, uint64_t place) {
  float value = operands_uniform(place);
  switch (kind) {
  case 0:
    return value + operands_uniform(place ^ (uint64_t)1 << 40) + operands_uniform(place ^ (uint64_t)1 << 41);
  case 1:
    return mix(place ^ (uint64_t)1 << 42) % 64 == 0 ? value * 100 : value;
  case 2:
    return 0;
  case 3:
    return value * 0.01f;
  default:
    return place % 2 == 0 ? 1 + value * 0.001f : -1 - value * 0.001f;
  }
}

void operands_put(void *data, int64_t i, enum gemm_type type, float value) {
  switch (type) {
  case GEMM_F16:
    ((uint16_t *)data)[i] = number_to_f16(value);
    break;
  case GEMM_BF16:
    ((uint16_t *)data)[i] = number_to_bf16(value);
    break;
  case GEMM_INT8:
    ((int8_t *)data)[i] = number_quantize_int8(value, 1.0f / 32);
    break;
  case GEMM_E4M3:
    ((uint8_t *)data)[i] = number_to_e4m3(value);
    break;
  default:
    ((float *)data)[i] = value;
  }
}

void operands_widen(const void *data, int64_t first, int count, enum gemm_type type, double *out) {
  const uint16_t *halves = (const uint16_t *)data + first;
  switch (type) {
  case GEMM_F16:
    for (int i = 0; i < count; i++)
      out[i] = number_from_f16(halves[i]);
    break;
  case GEMM_BF16:
    for (int i = 0; i < count; i++) {
      float value;
      memcpy(&value, &(uint32_t){(uint32_t)halves[i] << 16}, sizeof value);
      out[i] = value;
    }
    break;
  case GEMM_S32:
    for (int i = 0; i < count; i++)
      out[i] = ((const int32_t *)data)[first + i];
    break;
  default:
    for (int i = 0; i < count; i++)
      out[i] = ((const float *)data)[first + i];
  }
}
