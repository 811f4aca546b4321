/* What the parts of the tuner share: the shape at hand, and where its tuning stands. For tuner*.c alone, where each
 * uses those below it:
 *
 *   tuner.c           open and close; which kernel serves; bursts
 *   tuner_requests.c  list, ask, forget, import, pin
 *   tuner_shape.c     pieces of work on a shape
 *   tuner_race.c      candidates of a shape, and what came of them
 *   tuner_proof.c     kernels that no test has seen
 *   tuner_current.c   which shape is at hand, and who asked for it
 *   tuner_kept.c      what was found before
 *   tuner_publish.c   what others are told
 *   tuner_saves.c     what goes to the disk */
#pragma once

#include "../../../kernels/race.h"
#include "../../../proto/clock.h"
#include "../proof/proof.h"
#include "record/tune_pins.h"
#include "record/tune_table.h"
#include "tune_lister.h"
#include "tune_trial.h"
#include "tuner_types.h"

#include <stdatomic.h>

/* What is done with the shape at hand, in this order. */
enum tuner_phase {
  PHASE_PREPARE,
  PHASE_OWN,   /* the backend's own choice is compared: it serves anyway, and others need not be better */
  PHASE_GIVEN, /* the kept variant or the pin is compared */
  PHASE_LIST,  /* the backend is asked for candidates */
  PHASE_RACE,
  PHASE_LIBRARY, /* a library's are waited for; then the race goes on with them */
  PHASE_PROOF,   /* of what is given or in the race: in a process of its own; then back to where it was */
};

/* Device times of the last products, in a ring. */
enum { SERVED_TIMES = 128, SERVED_RARE = 2 /* of so many, longer ones are no rule */ };
struct served_times {
  uint64_t ns[SERVED_TIMES];
  uint32_t count;
};

struct tuner {
  struct tuner_options options;
  struct book book;
  struct tune_db db;
  struct tune_pin *pins; /* owned */
  struct trial trial;
  struct race race;
  struct tune_table table;    /* of the last race that somebody asked for */
  int incumbent;              /* candidate that served when the race began */
  struct tune_lister *lister; /* owned; NULL: the backend's list is all there is */
  bool settled;               /* a look at the book found nothing to do, and nothing has changed since */
  bool waiting;               /* or nothing but what was set aside */
  struct book_entry *current; /* NULL: none */
  struct engine_message *ask; /* that it is tuned for; NULL: nobody's */
  enum tuner_phase phase;
  bool comparing;       /* trial_compare has begun */
  uint32_t notes;       /* of what is tried, that were sent to the disk */
  atomic_uint noted;    /* how many of them are there */
  int compared;         /* candidate of the race that is */
  struct variant given; /* in PHASE_GIVEN */
  struct proof proof;
  enum tuner_phase proof_for; /* GIVEN or RACE */
  struct backend_roof roof;
  bool roof_known;            /* the backend has been asked */
  char identity[128];         /* of what measured times depend on, as in struct backend_info */
  uint64_t proof_deadline_ns; /* for the next word */
  bool proven[RACE_MOST];     /* of candidates; [0] in PHASE_GIVEN: of what is given */
  bool given_failed;          /* what is given did not prove right */
  uint64_t sample_ns;         /* what the last sample took, all told */
  uint64_t proof_seen_ns;     /* when the process that proves was looked at last */
  bool compiled;              /* variants that have to be compiled are in the race */
  bool interrupted;           /* and were passed over, because requests came */
  uint64_t disturbed_ns;      /* when the first one did; 0: none has */
  bool library_due;           /* the race goes on with a library's variants */
  int library_first;          /* place in the race of what a library names first; -1: none */
  bool brief;                 /* the race is by a few of each family: requests come, and other shapes wait */
  uint64_t launch_ns;         /* of the backend's own choice, by calibration; 0: not known */
  int calibrated;             /* samples for that */
  uint32_t launches;          /* in one sample */
  uint64_t spent_ns;          /* on the current shape */
  uint64_t worked_ns;         /* when the device last computed for it, or for one before; 0: never */
  uint32_t checked;           /* candidates of it */
  uint64_t allowed_until_ns;  /* for what nobody asks for; UINT64_MAX: without end */
  atomic_bool has_work;       /* as of the last step, for other threads */
  atomic_uint holds;          /* of other threads */
  atomic_bool stepping;       /* a step is under way */
  uint64_t last_request_ns;
  struct served_times served;              /* of the last products */
  bool patient;                            /* no requests come, or somebody waits for what is at hand */
  uint64_t not_before_ns;                  /* while requests come */
  struct engine_message *asks, *asks_last; /* TUNE_ASK, in order */
};

/* A time longer than any burst. */
#define TUNER_UNKNOWN_NS ((uint64_t)1 << 40)
