/* What came of every candidate of the last search that somebody asked for; kept until the next one begins. Pure: no
 * device, no clock; one thread. */
#pragma once

#include "../../../../kernels/backend.h"
#include "../../../../kernels/race.h"

enum tune_outcome {
  OUTCOME_TIMED,
  OUTCOME_UNTRIED, /* the search ended without it */
  OUTCOME_REFUSED, /* the backend does not take it for this shape; `why` */
  OUTCOME_FAILED,  /* it could not be built, launched or timed; `why` */
  OUTCOME_WRONG,   /* its results are not the plain kernel's; `why` */
};

struct tune_row {
  struct variant variant;
  enum tune_outcome outcome;
  bool own, incumbent, winner, library_first, hand;
  uint64_t ns; /* median of its samples; 0: none was taken */
  double spread;
  uint32_t samples;
  double error; /* of the row of y that is furthest off, relative to the plain kernel's in the 2-norm; < 0: not known */
  struct backend_needs needs;
  char why[128];
};

/* Candidates of the race that are told apart from the others; -1: there is none. */
struct tune_marks {
  int incumbent, library_first, hand;
};

enum { TABLE_ROWS = RACE_MOST + 8 /* that an earlier search found wrong, and this one does not try */ };

struct tune_table {
  struct tune_row *rows; /* owned; while it is open row i is of candidate i, behind TABLE_ROWS - extras others */
  uint32_t count, extras;
  uint64_t search; /* its number, from 1; 0: there has been none */
  bool open;       /* that search is under way */
  char shape[VARIANT_TEXT_BYTES];
  uint64_t roof_ns;
};

/* The search of another shape begins. Where there is no memory nothing is noted, and there is no table. */
void tune_table_begin(struct tune_table *table, const struct variant_problem *problem, uint64_t roof_ns);
/* It ends without a winner: there is no table. */
void tune_table_drop(struct tune_table *table);
void tune_table_close(struct tune_table *table);

/* Of an open table, else nothing; `who` is the candidate's number. */
void tune_table_note(struct tune_table *table, int who, enum tune_outcome outcome, const char *why);
void tune_table_compared(struct tune_table *table, int who, const double *errors, int kinds);
void tune_table_needs(struct tune_table *table, int who, const struct backend_needs *needs);
/* One that is left out, since an earlier search found it wrong. */
void tune_table_left_out(struct tune_table *table, const struct variant *variant);
/* The search is over: rows are put in order, fastest first, those without a time last. */
void tune_table_end(struct tune_table *table, const struct race *race, const struct tune_marks *marks);
