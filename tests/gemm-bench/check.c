#include "check.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static double from_half(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double value = exponent == 31 ? (mantissa > 0 ? (double)NAN : (double)INFINITY)
                 : exponent > 0 ? ldexp(1024 + mantissa, exponent - 25)
                                : ldexp(mantissa, -24);
  return bits >> 15 ? -value : value;
}

static double element(const uint8_t *data, size_t index, enum gemmd_type type) {
  uint16_t half;
  int32_t integer;
  float value;
  if (type == GEMMD_F16 || type == GEMMD_BF16)
    memcpy(&half, data + 2 * index, sizeof half);
  else
    memcpy(&integer, data + 4 * index, sizeof integer);
  if (type == GEMMD_F16)
    return from_half(half);
  if (type == GEMMD_S32)
    return integer;
  uint32_t bits = type == GEMMD_BF16 ? (uint32_t)half << 16 : (uint32_t)integer;
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}

double check_difference(const void *y, const void *alone, enum gemmd_type type, size_t rows, size_t columns) {
  double worst = 0;
  for (size_t row = 0; row < rows; row++) {
    double off = 0, size = 0;
    for (size_t i = row * columns; i < (row + 1) * columns; i++) {
      double right = element(alone, i, type), difference = element(y, i, type) - right;
      off += difference * difference;
      size += right * right;
    }
    double part = off > 0 ? sqrt(off / size) : off == 0 ? 0 : (double)INFINITY;
    worst = part > worst ? part : worst;
  }
  return worst;
}
