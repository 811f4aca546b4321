/* How a tuner is set up, what it is asked, and what it tells. */
#pragma once

#include "../../../proto/shm/published.h"
#include "../serve/objects.h"
#include "record/tune_db.h"
#include "record/tune_table.h"

struct tuner;

enum tune_mode { TUNE_OFF, TUNE_BACKGROUND, TUNE_EAGER };

struct tuner_options {
  const struct backend_ops *ops;
  struct backend *backend; /* not owned */
  int device;
  enum tune_mode mode;
  uint64_t burst_ns;      /* of work at a time */
  uint64_t quiet_ns;      /* without requests, before longer launches are tried */
  uint32_t share;         /* thousandths of the time that bursts may take while requests come */
  uint64_t budget_ns;     /* of work on one shape */
  uint64_t compile_ns;    /* of compiling and proving for one shape that nobody asks for; 0: none is */
  uint32_t compile_share; /* thousandths of a core for that */
  uint64_t arena_bytes;   /* for x and y of trials */
  const char *state_dir;  /* NULL or "": nothing is kept */
  bool publish;           /* what is found is told by ENGINE_TUNE_FOUND */
  bool heir;              /* what a predecessor died of is said by TUNE_FOLLOW, which comes first */
  char *const *prover;    /* command that runs prove_run with this backend, NULL at the end; not owned */
  /* As the engine's. Unasked, it gets ENGINE_TUNE_SAVE and ENGINE_TUNE_FOUND messages. */
  void (*notify)(void *user, struct engine_message *message);
  void *user;
};

/* ---- what it tells */

/* What goes to the disk, for which the engine does not wait. */
enum tune_save_verb {
  SAVE_WINNER, /* of the entry */
  SAVE_FORGET,
  SAVE_TRYING, /* the entry's variant is about to run for the first time; it does when this has been written */
  SAVE_TRIED   /* that it did */
};

/* Whoever gets them calls tuner_save, which frees it, in that order. */
struct tune_save {
  struct engine_message message;
  enum tune_save_verb verb;
  struct book_entry entry;
  struct tuner *tuner;
};

/* For all who launch kernels themselves: what serves now, or with PUBLISHED_NONE does not any more. Whoever gets it
 * frees it. */
struct tune_found {
  struct engine_message message;
  struct published_row row;
};

/* ---- what it is asked */

enum tune_verb {
  TUNE_LIST,
  TUNE_ASK,
  TUNE_FORGET,
  TUNE_IMPORT,
  TUNE_PIN,
  TUNE_FOLLOW,
  TUNE_SEEN,
  TUNE_ALLOW,
  TUNE_TRIALS
};
enum { TUNE_PAGE = 32, TUNE_RESULTS = 8 };

struct tune_shape {
  char shape[VARIANT_TEXT_BYTES], kernel[VARIANT_TEXT_BYTES];
  const char *state; /* "seen", "kept", "tuned", "failed", "pinned" */
  char why[128];
  bool serves, confirmed, tuning;
  uint64_t calls, device_ns, own_ns, tuned_ns, library_ns, roof_ns;
};

struct tune_result {
  char kernel[VARIANT_TEXT_BYTES];
  uint64_t ns;
  double spread;
  uint32_t samples;
  bool own;  /* the backend's own choice */
  bool hand; /* asked for by `text` */
};

struct tune_request {
  enum tune_verb verb;
  struct engine_weight *weight; /* ASK, PIN, SEEN */
  uint32_t user;                /* SEEN: who computes it */
  /* ASK: rows and types to tune for; `all`: the whole product of parameters. `text`: one more candidate, by hand.
   * SEEN: rows and types of a product that a client computes itself; `text`: the kernel that it found for that, one
   * more candidate. FORGET: `text` is an fnmatch pattern of shapes. IMPORT: a shape, and in `text` its kernel. PIN:
   * `text`, "" takes the pin off; weight NULL: only whether there is such a kernel. */
  struct variant_problem problem;
  bool all;
  uint32_t warmup, iterations; /* ASK: of every candidate: products that are not timed, samples at least; 0: no more
                                  than it takes to decide */
  uint64_t search;             /* ASK: its number. TRIALS: of which search; 0: the last one, and then its number */
  bool outside;                /* FOLLOW: the predecessor was killed from outside */
  uint32_t faults;             /* FOLLOW: predecessors that were not */
  uint64_t until_ns;           /* ALLOW: of clock_ns; nothing is tuned from then on that nobody asks for */
  char text[VARIANT_TEXT_BYTES];
  char shape[VARIANT_TEXT_BYTES];
  uint32_t from; /* LIST, TRIALS: where to go on */
  uint32_t next; /* LIST, TRIALS: where the next page begins; 0: none */
  uint32_t count;
  uint32_t total;                           /* TRIALS: rows of all pages */
  struct tune_shape page[TUNE_PAGE];        /* LIST */
  struct tune_row trials[TUNE_PAGE];        /* TRIALS, of `shape` */
  struct tune_result results[TUNE_RESULTS]; /* ASK: fastest first, then the backend's own choice and that by hand */
  uint32_t checked, wrong, timed;           /* ASK: candidates */
  uint64_t library_first_ns, library_ns;    /* ASK: by the kernel that a library names first, and its fastest */
  uint64_t spent_ns, roof_ns;               /* ASK; TRIALS: roof_ns */
  char why[128];                            /* ASK: why `text` cannot serve; "": it can, or there is none */
  char kernel[VARIANT_TEXT_BYTES];          /* ASK: what serves now */
};
