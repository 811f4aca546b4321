// From the words of int2/layout.h to codes in the order in which mma and wgmma take a dense 16 x 16 operand from
// registers. Includes nothing: part of what is compiled at run time, too.
#pragma once

// Half a group's codes of a lane's rows g and g + 8. In each, bits 2 f and 2 f + 1 of the low half, f = 2 s + r, are
// the code of k = 16 s + 8 r + 2 q, s = 0..3 and r = 0, 1, and those of the high half the code of the next k.
struct int2_rows {
  unsigned upper, lower;
};

// Nibbles of two codes each, the first one's in the lower bits.
__device__ inline unsigned int2_pairs(unsigned word) {
  const unsigned differ = (word ^ word >> 1) & 0x22222222u; // the middle bits of a nibble, which change places
  return word ^ differ * 3 ^ 0x55555555u;
}

// Of words 0 and 1, or 2 and 3. Ten instructions.
__device__ inline int2_rows int2_dense(unsigned even, unsigned odd) {
  const unsigned first = int2_pairs(even), second = int2_pairs(odd);
  return {__byte_perm(first, second, 0x5140), __byte_perm(first, second, 0x7362)};
}
