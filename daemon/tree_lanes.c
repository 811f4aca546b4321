#include "tree_lanes.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)

typedef uint64_t word_4 __attribute__((vector_size(32)));
typedef uint32_t half_4 __attribute__((vector_size(32)));
typedef uint8_t byte_4 __attribute__((vector_size(32)));
typedef uint64_t word_8 __attribute__((vector_size(64)));

enum { BLOCK_BYTES = 128, HEADER_BYTES = 16, WORDS = 16, HASH_BYTES = 32 };
#define TARGET_4 __attribute__((target("avx2")))
#define TARGET_8 __attribute__((target("avx512f,avx512vl")))
#define INLINE static inline __attribute__((always_inline))

/* BLAKE2b (RFC 7693): its initial state, and the order of message words in each round. */
static const uint64_t start[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};
#define PARAMETERS 0x01010020u /* a digest of 32 bytes, no key, one leaf */

#define ROUND_ORDERS(round)                                                                                            \
  round(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);                                                         \
  round(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);                                                         \
  round(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);                                                         \
  round(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);                                                         \
  round(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);                                                         \
  round(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);                                                         \
  round(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);                                                         \
  round(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);                                                         \
  round(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);                                                         \
  round(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);                                                         \
  round(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);                                                         \
  round(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)

/* The message words of one block of every lane: words[i] has word i of all lanes. `at` is that of lane 0, those of the
 * others follow every `stride` bytes. */
TARGET_4 INLINE void transpose_4(const uint8_t *at, uint64_t stride, word_4 words[WORDS]) {
  for (int i = 0; i < WORDS; i += 4) {
    word_4 row[4];
    for (int lane = 0; lane < 4; lane++)
      memcpy(&row[lane], at + (uint64_t)lane * stride + 8 * i, sizeof row[lane]);
    word_4 low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 2, 6);
    word_4 high01 = __builtin_shufflevector(row[0], row[1], 1, 5, 3, 7);
    word_4 low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 2, 6);
    word_4 high23 = __builtin_shufflevector(row[2], row[3], 1, 5, 3, 7);
    words[i] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    words[i + 1] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    words[i + 2] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    words[i + 3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
  }
}

TARGET_8 INLINE void transpose_8(const uint8_t *at, uint64_t stride, word_8 words[WORDS]) {
  word_4 low[WORDS], high[WORDS];
  transpose_4(at, stride, low);
  transpose_4(at + 4 * stride, stride, high);
  for (int i = 0; i < WORDS; i++)
    words[i] = __builtin_shufflevector(low[i], high[i], 0, 1, 2, 3, 4, 5, 6, 7);
}

/* Rotations to the right; those by whole bytes are one shuffle. */
TARGET_4 INLINE word_4 right32_4(word_4 x) {
  half_4 y = (half_4)x;
  return (word_4)__builtin_shufflevector(y, y, 1, 0, 3, 2, 5, 4, 7, 6);
}
TARGET_4 INLINE word_4 right24_4(word_4 x) {
  byte_4 y = (byte_4)x;
  return (word_4)__builtin_shufflevector(y, y, 3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10, 19, 20, 21, 22, 23,
                                         16, 17, 18, 27, 28, 29, 30, 31, 24, 25, 26);
}
TARGET_4 INLINE word_4 right16_4(word_4 x) {
  byte_4 y = (byte_4)x;
  return (word_4)__builtin_shufflevector(y, y, 2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9, 18, 19, 20, 21, 22,
                                         23, 16, 17, 26, 27, 28, 29, 30, 31, 24, 25);
}
TARGET_4 INLINE word_4 right63_4(word_4 x) {
  return x >> 63 ^ (x + x);
}
TARGET_8 INLINE word_8 right32_8(word_8 x) {
  return x >> 32 | x << 32;
}
TARGET_8 INLINE word_8 right24_8(word_8 x) {
  return x >> 24 | x << 40;
}
TARGET_8 INLINE word_8 right16_8(word_8 x) {
  return x >> 16 | x << 48;
}
TARGET_8 INLINE word_8 right63_8(word_8 x) {
  return x >> 63 | x << 1;
}

#define MIX(lanes, a, b, c, d, x, y)                                                                                   \
  v[a] += v[b] + m[x];                                                                                                 \
  v[d] = right32_##lanes(v[d] ^ v[a]);                                                                                 \
  v[c] += v[d];                                                                                                        \
  v[b] = right24_##lanes(v[b] ^ v[c]);                                                                                 \
  v[a] += v[b] + m[y];                                                                                                 \
  v[d] = right16_##lanes(v[d] ^ v[a]);                                                                                 \
  v[c] += v[d];                                                                                                        \
  v[b] = right63_##lanes(v[b] ^ v[c])

#define ROUND(lanes, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15)                             \
  MIX(lanes, 0, 4, 8, 12, s0, s1);                                                                                     \
  MIX(lanes, 1, 5, 9, 13, s2, s3);                                                                                     \
  MIX(lanes, 2, 6, 10, 14, s4, s5);                                                                                    \
  MIX(lanes, 3, 7, 11, 15, s6, s7);                                                                                    \
  MIX(lanes, 0, 5, 10, 15, s8, s9);                                                                                    \
  MIX(lanes, 1, 6, 11, 12, s10, s11);                                                                                  \
  MIX(lanes, 2, 7, 8, 13, s12, s13);                                                                                   \
  MIX(lanes, 3, 4, 9, 14, s14, s15)
#define ROUND_4(...) ROUND(4, __VA_ARGS__)
#define ROUND_8(...) ROUND(8, __VA_ARGS__)

/* One block into the state of all lanes; `counted`: bytes so far, with this block; `last`: all ones in the last. */
#define DEFINE_COMPRESS(lanes)                                                                                         \
  TARGET_##lanes static void compress_##lanes(word_##lanes h[8], const word_##lanes m[WORDS], uint64_t counted,        \
                                              uint64_t last) {                                                         \
    word_##lanes v[WORDS];                                                                                             \
    for (int i = 0; i < 8; i++) {                                                                                      \
      v[i] = h[i];                                                                                                     \
      v[8 + i] = (word_##lanes){0} + start[i];                                                                         \
    }                                                                                                                  \
    v[12] ^= counted;                                                                                                  \
    v[14] ^= last;                                                                                                     \
    ROUND_ORDERS(ROUND_##lanes);                                                                                       \
    for (int i = 0; i < 8; i++)                                                                                        \
      h[i] ^= v[i] ^ v[8 + i];                                                                                         \
  }
DEFINE_COMPRESS(4)
DEFINE_COMPRESS(8)

static uint64_t word_at(const void *at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  return word;
}

/* The first block has the header and what of the piece follows it, the last the piece's end and zeros. */
#define DEFINE_HASH(lanes)                                                                                             \
  TARGET_##lanes static void blake_##lanes(const struct tree_kind *kind, const uint8_t *pieces, uint64_t first,        \
                                           uint8_t(*leaves)[HASH_BYTES]) {                                             \
    uint64_t stride = kind->piece_bytes;                                                                               \
    uint8_t header[HEADER_BYTES] = {0};                                                                                \
    word_##lanes h[8], m[WORDS];                                                                                       \
    memcpy(header, kind->text, sizeof kind->text);                                                                     \
    for (int i = 0; i < 8; i++)                                                                                        \
      h[i] = (word_##lanes){0} + (start[i] ^ (i == 0 ? PARAMETERS : 0));                                               \
    for (uint64_t lane = 0; lane < lanes; lane++) {                                                                    \
      m[0][lane] = word_at(header);                                                                                    \
      m[1][lane] = word_at(header + 8) | (first + lane) << 32;                                                         \
      for (int i = 2; i < WORDS; i++)                                                                                  \
        m[i][lane] = word_at(pieces + lane * stride + 8 * (i - 2));                                                    \
    }                                                                                                                  \
    compress_##lanes(h, m, BLOCK_BYTES, 0);                                                                            \
    for (uint64_t at = BLOCK_BYTES; at < stride; at += BLOCK_BYTES) {                                                  \
      transpose_##lanes(pieces + at - HEADER_BYTES, stride, m);                                                        \
      compress_##lanes(h, m, at + BLOCK_BYTES, 0);                                                                     \
    }                                                                                                                  \
    for (int i = 0; i < WORDS; i++)                                                                                    \
      m[i] = (word_##lanes){0};                                                                                        \
    for (uint64_t lane = 0; lane < lanes; lane++)                                                                      \
      for (int i = 0; i < HEADER_BYTES / 8; i++)                                                                       \
        m[i][lane] = word_at(pieces + (lane + 1) * stride - HEADER_BYTES + 8 * i);                                     \
    compress_##lanes(h, m, stride + HEADER_BYTES, UINT64_MAX);                                                         \
    for (uint64_t lane = 0; lane < lanes; lane++)                                                                      \
      for (int i = 0; i < HASH_BYTES / 8; i++) {                                                                       \
        uint64_t word = h[i][lane];                                                                                    \
        memcpy(leaves[lane] + 8 * i, &word, sizeof word);                                                              \
      }                                                                                                                \
  }
DEFINE_HASH(4)
DEFINE_HASH(8)

unsigned tree_lanes(void) {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vl") ? 8 : __builtin_cpu_supports("avx2") ? 4 : 0;
}

void tree_lanes_hash(const struct tree_kind *kind, const uint8_t *pieces, uint64_t first,
                     uint8_t (*leaves)[HASH_BYTES]) {
  if (tree_lanes() == 8)
    blake_8(kind, pieces, first, leaves);
  else
    blake_4(kind, pieces, first, leaves);
}

#else

unsigned tree_lanes(void) {
  return 0;
}

void tree_lanes_hash(const struct tree_kind *kind, const uint8_t *pieces, uint64_t first, uint8_t (*leaves)[32]) {}

#endif
