#include "micro.h"

#include "proto/number.h"
#include "tests/support/reference/oracle.h"

#include <string.h>

const struct micro_ops *micro;

int micro_run_each(int (*run)(const char *name)) {
  int failed = 0;
  for (int i = 0; micro_table[i] != NULL; i++) {
    micro = micro_table[i];
    if (micro->usable()) {
      failed += run(micro->name);
    }
  }
  return failed;
}

void codes2_fill(struct codes2 *codes, int width) {
  uint64_t random = 7;
  memset(codes, 0, sizeof(*codes));
  codes->width = width;
  for (int i = 0; i < 2 * MICRO_GROUP * width; i++) {
    int k = i / width, column = i % width, group = k / MICRO_GROUP;
    uint8_t *words = codes->panel + group * MICRO_GROUP_BYTES * width + k % MICRO_GROUP / 16 * 4 * width;
    codes->code[k][column] = oracle_random(&random) & 3;
    words[4 * column + k % 4] |= (uint8_t)(codes->code[k][column] << k % 16 / 4 * 2);
  }
  for (int i = 0; i < 2 * width; i++) {
    uint16_t half = number_to_f16((float)oracle_normal(&random));
    codes->scale[i / width][i % width] = number_from_f16(half);
    memcpy(codes->panel + i / width * MICRO_GROUP_BYTES * width + 32 * width + 2 * (i % width), &half, sizeof(half));
  }
}
