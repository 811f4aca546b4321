#include "checksum.h"

#include <string.h>

/* Eight independent chains hide the latency of the multiplication. Each step is a bijection of the chain for a given
 * word and of the word for a given chain, so a change of one word always changes the result. */
enum { CHAINS = 8 };

static uint64_t step(uint64_t chain, uint64_t word) {
  chain = (chain ^ word) * 0x9fb21c651e98df25u;
  return chain ^ chain >> 32;
}

uint64_t cpu_checksum(const void *data, uint64_t bytes) {
  const uint8_t *at = data;
  uint64_t chains[CHAINS], words[CHAINS], left = bytes, sum = bytes;
  for (int i = 0; i < CHAINS; i++) {
    chains[i] = (uint64_t)i + 1;
  }
  for (; left >= sizeof(words); left -= sizeof(words), at += sizeof(words)) {
    memcpy(words, at, sizeof(words));
    for (int i = 0; i < CHAINS; i++) {
      chains[i] = step(chains[i], words[i]);
    }
  }
  memset(words, 0, sizeof(words));
  memcpy(words, at, left);
  for (int i = 0; i < CHAINS; i++) {
    sum = step(sum, step(chains[i], words[i]));
  }
  return sum;
}
