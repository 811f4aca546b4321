/* What a multiprocessor does a clock cycle, for the cost models of kernels for every device. Fitted to an H200, where
 * they are what kernels reach; of others after what their vendors say. Pure. */
#pragma once

struct sm80_rates {
  double ghz;
  double memory, cache;  /* bytes: of memory, where all read, and of the L2 */
  double halves, bytes;  /* cycles of a scheduler for an instruction of 16 x 8 x 16 halves, of 16 x 8 x 32 bytes */
  double read, multiply; /* of memory and cycles for bytes where nothing but that is done */
};

static inline struct sm80_rates sm80_rates_of(int capability) {
  if (capability >= 90)
    return (struct sm80_rates){1.75, 14.9, 25.6, 6.9, 9.5, 20, 6.1};
  if (capability == 80)
    return (struct sm80_rates){1.41, 9, 25, 8, 8, 10, 8};
  return capability == 89 ? (struct sm80_rates){2.5, 3, 18, 16, 16, 3, 16}
                          : (struct sm80_rates){1.7, 6, 20, 32, 16, 6, 16};
}
