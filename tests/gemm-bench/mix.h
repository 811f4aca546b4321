/* What clients ask for: one of several weights, and one of several numbers of rows. */
#pragma once

#include "client/tool/command.h"

enum { MIX_MOST = 16 };

struct mix {
  char names[MIX_MOST][256]; /* of weights, each as likely as the next */
  gemmd_weight_info weights[MIX_MOST];
  int weight_count;
  /* A plan over all of them in their order, in place of products with one of them. */
  struct {
    enum gemmd_activation activation;
    bool gated;
  } steps[MIX_MOST];
  bool plan;
  uint32_t rows[MIX_MOST];
  double shares[MIX_MOST]; /* up to and including this one, of 1 */
  int rows_count;
  uint32_t rows_most;
};

/* "a,b,c". False after having said what is wrong. */
bool mix_parse_weights(const struct tool_call *call, const char *text, struct mix *mix);
/* "swiglu,none": what stands behind the product with each weight of a plan. */
bool mix_parse_plan(const struct tool_call *call, const char *text, struct mix *mix);
/* Its word; NULL for a number that is none. */
const char *mix_step_word(const struct mix *mix, int step);
/* "1" or "1:8,16:1": M, and how often relative to the others. */
bool mix_parse_rows(const struct tool_call *call, const char *text, struct mix *mix);
/* By a number in 0..1. */
int mix_weight(const struct mix *mix, double random);
uint32_t mix_rows(const struct mix *mix, double random);
