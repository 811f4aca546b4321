#include "checksum.h"

#include <string.h>

/* Eight independent chains hide the latency of the multiplication. Each step is a bijection of the chain for a given
 * word and of the word for a given chain, so a change of one word always changes the result. */
enum { CHAINS = 8, AHEAD_BYTES = 2048 };

static uint64_t step(uint64_t chain, uint64_t word) {
  chain = (chain ^ word) * 0x9fb21c651e98df25u;
  return chain ^ chain >> 32;
}

static uint64_t word_at(const uint8_t *at) {
  uint64_t word;
  memcpy(&word, at, sizeof(word));
  return word;
}

/* Unrolled, so that the chains are in registers: as vectors, of which few machines multiply 64 bits, or in memory they
 * take half as long again. */
#define EACH_CHAIN _Pragma("GCC unroll 8") for (int i = 0; i < CHAINS; i++)

uint64_t cpu_checksum(const void *data, uint64_t bytes) {
  const uint8_t *at = data;
  uint64_t chains[CHAINS], words[CHAINS] = {0}, left = bytes, sum = bytes;
  EACH_CHAIN {
    chains[i] = (uint64_t)i + 1;
  }
  for (; left >= sizeof(words); left -= sizeof(words), at += sizeof(words)) {
    __builtin_prefetch(at + AHEAD_BYTES);
    EACH_CHAIN {
      chains[i] = step(chains[i], word_at(at + 8 * i));
    }
  }
  memcpy(words, at, left);
  EACH_CHAIN {
    sum = step(sum, step(chains[i], words[i]));
  }
  return sum;
}
