/* What the parts of the tuner share: the shape at hand, and where its tuning stands. For tuner*.c alone.
 *
 *   tuner.c           open and close; which kernel serves; bursts
 *   tuner_shape.c     one shape: its phases, pieces of work, who asked for it
 *   tuner_race.c      candidates of a shape, and what came of them
 *   tuner_saves.c     what goes to the disk
 *   tuner_publish.c   what others are told
 *   tuner_proof.c     kernels that no test has seen
 *   tuner_requests.c  list, ask, forget, import, pin */
#ifndef WORKER_TUNE_TUNER_STATE_H
#define WORKER_TUNE_TUNER_STATE_H

#include "../../../proto/clock.h"
#include "proof.h"
#include "tune_lister.h"
#include "tune_pins.h"
#include "tune_race.h"
#include "tune_trial.h"
#include "tuner.h"

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

struct tuner {
  struct tuner_options options;
  struct book book;
  struct tune_db db;
  struct tune_pin *pins; /* owned */
  struct trial trial;
  struct race race;
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
  bool library_due;           /* the race goes on with a library's variants */
  int library_first;          /* place in the race of what a library names first; -1: none */
  uint64_t launch_ns;         /* of the backend's own choice, by calibration; 0: not known */
  int calibrated;             /* samples for that */
  uint32_t launches;          /* in one sample */
  uint64_t spent_ns;          /* on the current shape */
  uint32_t checked;           /* candidates of it */
  uint64_t last_request_ns;
  uint64_t not_before_ns;                  /* while requests come */
  struct engine_message *asks, *asks_last; /* TUNE_ASK, in order */
};
/* A time longer than any burst. */
#define TUNER_UNKNOWN_NS ((uint64_t)1 << 40)

/* What the device delivers at most. Asks the backend when it is first wanted: that may take a while. */
const struct backend_roof *tuner_roof(struct tuner *tuner);

/* Has the entry's winner written, or what was written removed, where anything is kept. */
void tuner_keep(struct tuner *tuner, const struct book_entry *entry);
void tuner_unkeep(struct tuner *tuner, const struct book_entry *entry);
/* Tells everybody of the kernel that serves the entry, and of the fastest that is built in where it is not (NULL: none
 * is known); or that none does any more. Not of pins, which are for some weights only. */
void tuner_publish(struct tuner *tuner, const struct book_entry *entry, const struct race_candidate *built_in);
void tuner_unpublish(struct tuner *tuner, const struct book_entry *entry);
/* Has it noted that the variant is about to run for the first time, NULL: that it did. */
void tuner_note(struct tuner *tuner, const struct book_entry *entry, const struct variant *variant);
/* Whether what is about to run still waits for its note. */
bool tuner_notes(const struct tuner *tuner);

/* A predecessor is gone: see struct tune_request. */
void tuner_follow(struct tuner *tuner, bool outside, uint32_t faults);

/* ---- the shape at hand
 * Takes one up; false where it cannot be tuned. */
bool tuner_begin(struct tuner *tuner, struct book_entry *entry);
/* Leaves it; it comes again where it is still to be tuned. */
void tuner_leave(struct tuner *tuner);
void tuner_give_up(struct tuner *tuner, enum status status, const char *why);
/* Sends the message of who asked for it back, if anybody did. */
void tuner_answer(struct tuner *tuner, enum status status, const char *why);
/* The variant is never used for it: noted, logged, and told to who asked for the variant by hand. */
void tuner_blame(struct tuner *tuner, const struct variant *variant, const char *why);
/* Whether the shape is tuned for somebody who asked for this variant by hand. */
bool tuner_by_hand(const struct tuner *tuner, const struct variant *variant);
/* A piece of work. DEVICE_LOST is the only failure. */
MUST_CHECK enum status tuner_work(struct tuner *tuner, struct error *error);

/* Candidates: the backend's own choice, what was kept or has won, what was asked for by hand, and the backend's best
 * guesses. A library's come later: they need not be known yet, and trying them takes a while without requests. */
void tuner_race_begin(struct tuner *tuner);
/* Once they are known. False: not yet. */
bool tuner_race_library(struct tuner *tuner);
/* More of them, like the best so far and like what was asked for by hand. */
void tuner_race_refine(struct tuner *tuner);
/* Publishes the winner, and leaves the shape where no library waits. */
void tuner_race_end(struct tuner *tuner);

/* ---- proof
 * Whether the variant has to be proven in a process of its own first, as candidate `who` of the race, 0 for what is
 * given; if so, that is what comes next. */
bool tuner_proof_needed(struct tuner *tuner, const struct variant *variant, int who);
/* In PHASE_PROOF: starts and hears the process while it is quiet. Returns as tuner_step does. */
uint64_t tuner_proof_step(struct tuner *tuner, uint64_t now_ns, bool quiet);

/* ---- requests */
void tuner_unpin(struct tuner *tuner, struct engine_weight *weight);
/* Those that wait for a shape of the weight go back with CANCELLED; NULL: all. */
void tuner_cancel_asks(struct tuner *tuner, const struct engine_weight *weight);

#endif
