/* The tables of instruction sets. Text of each micro_*.c, behind the others. */
#ifndef KERNELS_CPU_MICRO_MICRO_SET_H
#define KERNELS_CPU_MICRO_MICRO_SET_H

#include "micro_codes4.h"
#include "micro_spin.h"
#include "micro_tile.h"

/* What the table of every instruction set has. */
#define MICRO_FIELDS(name_, usable_)                                                                                   \
  .name = name_, .usable = usable_, .widen_bf16 = widen_bf16, .widen_s8 = widen_s8, .narrow_f16 = narrow_f16,          \
  .narrow_bf16 = narrow_bf16, .largest = largest, .rotate = rotate_groups, .quantize_int8 = quantize_int8,             \
  .quantize_e4m3 = quantize_e4m3, .sum_s8 = sum_s8, .finish_s32 = finish_s32, .finish_f32 = finish_f32,                \
  .finish_s32_wide = finish_s32_wide, .finish_f32_wide = finish_f32_wide, .unpack_codes4_f32 = unpack_codes4_f32,      \
  .groups_codes4 = groups_codes4, MICRO_SPIN_FIELDS

/* The table of one whose compiler makes the most of plain loops. */
#define MICRO_SET(symbol, name_, usable_)                                                                              \
  const struct micro_ops symbol = {                                                                                    \
      MICRO_FIELDS(name_, usable_),                                                                                    \
      .widen_f16 = widen_f16,                                                                                          \
      .widen_e4m3 = widen_e4m3,                                                                                        \
      .tile = {[MICRO_INTEGER] = {[MICRO_DWORDS] = tile_integer},                                                      \
               [MICRO_F32] = {[MICRO_DWORDS] = tile_f32, [MICRO_CODES4] = tile_codes4}},                               \
      .unpack_rows = {[MICRO_CODES4] = CODES4_ROWS},                                                                   \
      .few_rows = {[MICRO_CODES4] = CODES4_ROWS},                                                                      \
      .rows = ROWS,                                                                                                    \
      .unpack_e4m3_f32 = unpack_e4m3_f32,                                                                              \
      .unpack_bf16_f32 = unpack_bf16_f32,                                                                              \
      .unpack_codes2 = unpack_codes2,                                                                                  \
      .unpack_codes2_f32 = unpack_codes2_f32,                                                                          \
  }

#endif
