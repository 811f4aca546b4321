/* The tables of instruction sets. Text of each micro_*.c, behind the others. */
#pragma once

#ifndef NO_INTEGERS
#include "micro_codes4.h"
#endif
#include "micro_spin.h"
#include "micro_tile.h"

/* What the table of every instruction set has. */
#define MICRO_FIELDS(name_, usable_)                                                                                   \
  .name = name_, .usable = usable_, .widen_bf16 = widen_bf16, .widen_s8 = widen_s8, .narrow_f16 = narrow_f16,          \
  .narrow_bf16 = narrow_bf16, .largest = largest, .rotate = rotate_groups, .quantize_int8 = quantize_int8,             \
  .quantize_e4m3 = quantize_e4m3, .sum_s8 = sum_s8, .finish_s32 = finish_s32, .finish_f32 = finish_f32,                \
  .finish_s32_wide = finish_s32_wide, .finish_f32_wide = finish_f32_wide, .unpack_codes4_f32 = unpack_codes4_f32,      \
  .groups_codes4 = groups_codes4, MICRO_SPIN_FIELDS

/* Into a copy of another set's table: integers are multiplied by instructions of its own. */
#define MICRO_OWN_INTEGERS(symbol, name_, usable_)                                                                     \
  void symbol(struct micro_ops *ops);                                                                                  \
  void symbol(struct micro_ops *ops) {                                                                                 \
    ops->name = name_;                                                                                                 \
    ops->usable = usable_;                                                                                             \
    ops->tile[MICRO_WORDS][MICRO_DWORDS] = ops->tile[MICRO_WORDS][MICRO_U8] = NULL;                                    \
    ops->tile_interleaved[MICRO_WORDS] = NULL;                                                                         \
    ops->spin[MICRO_WORDS] = NULL;                                                                                     \
    ops->words_s8 = NULL;                                                                                              \
    ops->unpack_u8_words = NULL;                                                                                       \
    ops->tile[MICRO_INTEGER][MICRO_DWORDS] = tile_integer;                                                             \
    ops->groups_dwords = groups_dwords;                                                                                \
    ops->groups_codes2 = groups_codes2;                                                                                \
    ops->groups_codes4 = groups_codes4;                                                                                \
    ops->spin[MICRO_INTEGER] = ops->spin[MICRO_SPIN_CODES] = spin_integer;                                             \
  }

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
