#include "tune_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tune_table_begin(struct tune_table *table, const struct variant_problem *problem, uint64_t roof_ns) {
  if (table->rows == NULL)
    table->rows = calloc(TABLE_ROWS, sizeof *table->rows);
  table->search++;
  table->count = table->extras = 0;
  table->open = table->rows != NULL;
  table->roof_ns = roof_ns;
  variant_problem_text(problem, table->shape);
  for (int i = 0; i < TABLE_ROWS && table->open; i++)
    table->rows[i] = (struct tune_row){.outcome = OUTCOME_UNTRIED, .error = -1};
}

void tune_table_drop(struct tune_table *table) {
  if (table->open)
    table->count = table->extras = 0;
  table->open = false;
}

void tune_table_close(struct tune_table *table) {
  free(table->rows);
  *table = (struct tune_table){.rows = NULL};
}

void tune_table_note(struct tune_table *table, int who, enum tune_outcome outcome, const char *why) {
  if (!table->open)
    return;
  table->rows[who].outcome = outcome;
  snprintf(table->rows[who].why, sizeof table->rows[who].why, "%.127s", why);
}

void tune_table_compared(struct tune_table *table, int who, const double *errors, int kinds) {
  double error = 0;
  for (int i = 0; i < kinds; i++)
    error = fmax(error, errors[i]);
  if (table->open)
    table->rows[who].error = error;
}

void tune_table_needs(struct tune_table *table, int who, const struct backend_needs *needs) {
  if (table->open)
    table->rows[who].needs = *needs;
}

void tune_table_left_out(struct tune_table *table, const struct variant *variant) {
  if (!table->open || table->extras == TABLE_ROWS - RACE_MOST)
    return;
  for (uint32_t i = 1; i <= table->extras; i++)
    if (variant_equal(&table->rows[TABLE_ROWS - i].variant, variant))
      return;
  struct tune_row *row = &table->rows[TABLE_ROWS - ++table->extras];
  row->variant = *variant;
  row->outcome = OUTCOME_WRONG;
  snprintf(row->why, sizeof row->why, "an earlier search found it wrong, or it failed then");
}

static int in_order(const void *left, const void *right) {
  const struct tune_row *a = left, *b = right;
  if (a->outcome != b->outcome)
    return (int)a->outcome - (int)b->outcome;
  return (a->ns > b->ns) - (a->ns < b->ns);
}

static void fill(struct tune_row *row, const struct race_candidate *candidate) {
  row->variant = candidate->variant;
  row->ns = race_median(candidate);
  row->spread = race_spread(candidate);
  row->samples = candidate->count;
  bool sound = candidate->state == RACE_RUNNING || candidate->state == RACE_OUT;
  if (sound && row->ns > 0)
    row->outcome = OUTCOME_TIMED;
}

void tune_table_end(struct tune_table *table, const struct race *race, const struct tune_marks *marks) {
  if (!table->open)
    return;
  for (int i = 0; i < race->count; i++) {
    struct tune_row *row = &table->rows[i];
    fill(row, &race->candidates[i]);
    row->own = i == 0;
    row->winner = i == race->winner;
    row->incumbent = i == marks->incumbent;
    row->library_first = i == marks->library_first;
    row->hand = i == marks->hand;
  }
  memmove(&table->rows[race->count], &table->rows[TABLE_ROWS - table->extras], table->extras * sizeof *table->rows);
  table->count = (uint32_t)race->count + table->extras;
  table->open = false;
  qsort(table->rows, table->count, sizeof *table->rows, in_order);
}
