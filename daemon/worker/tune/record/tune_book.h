/* The shapes that are served: how often, for how long, by which kernel, and which of them to tune next. Pure: no
 * device, no clock; one thread. */
#pragma once

#include "../../../../kernels/backend.h"

enum {
  BOOK_ENTRIES = 4096, /* shapes in the list at most; a power of two. Others are served untuned */
  BOOK_WEIGHTS = 8,    /* resident weights of a shape that timings rotate through */
  BOOK_WRONG = 8,      /* variants remembered that computed wrong results or failed */
};

#define BOOK_NOBODY UINT32_MAX

enum book_state {
  BOOK_SEEN,  /* not tuned */
  BOOK_KEPT,  /* the kept winner of an earlier run is to be compared with the reference before it serves */
  BOOK_TUNED, /* `variant` has won, or nothing was faster than the backend's own choice */
  BOOK_FAILED /* cannot be tuned; `why` */
};

struct book_entry {
  struct variant_problem problem;
  const struct variant *pin; /* set by hand for the weights that this entry is of; NULL: none. Not owned */
  bool used;
  bool held;        /* it is being tuned, and stays */
  uint32_t user;    /* who asked for it first; BOOK_NOBODY: nobody has, since it was kept or imported */
  uint64_t seen_ns; /* when it was asked for last */
  enum book_state state;
  bool serves;        /* `variant` computes products, else the backend's own choice does */
  bool confirmed;     /* the times were measured on this machine */
  bool asked;         /* somebody asked for it to be tuned: before all others */
  bool brief;         /* it was raced, but by a few candidates of each family: the others wait for other shapes */
  bool library_waits; /* it was raced, but not against what a library has */
  bool
      compiled_wait; /* nor against kernels that have to be compiled, which may be faster: no built-in one is fastest */
  bool aside;        /* what comes next for it takes a while without requests */
  uint64_t compile_ns;    /* that has been spent on compiling and proving, unasked */
  uint64_t rare_ns;       /* while device_ns is less, it is too rare to be tuned between requests */
  struct variant variant; /* family NULL: the backend's own choice */
  uint64_t calls, device_ns;
  uint64_t own_ns, tuned_ns; /* of one launch: the backend's own choice and `variant`; 0: not measured */
  uint64_t library_ns;       /* of the fastest variant of a library; 0: none was measured */
  struct backend_weight *weights[BOOK_WEIGHTS];
  uint32_t weight_count;
  struct variant proposed; /* that a client has found: one more candidate; family NULL: none */
  struct variant wrong[BOOK_WRONG];
  uint32_t wrong_count;
  char why[128];
};

struct book {
  struct book_entry *entries; /* owned; BOOK_ENTRIES */
  uint32_t count;
};

MUST_CHECK enum status book_open(struct book *book, struct error *error);
void book_close(struct book *book);

/* Who asks for a shape, and when. */
struct book_visit {
  uint32_t user; /* id; BOOK_NOBODY: it is not for a product */
  uint64_t now_ns;
};

/* The entry of a problem; NULL where there is none. */
struct book_entry *book_find(struct book *book, const struct variant_problem *problem, const struct variant *pin);
/* The same, and makes one: in the place of one that was not asked for in ten minutes, or of one of a user who has more
 * of them, where all are taken. NULL where there is no such. It stays where it is until another visit takes its place.
 */
struct book_entry *book_visit(struct book *book, const struct variant_problem *problem, const struct variant *pin,
                              const struct book_visit *visit);
/* One more resident weight of this shape, where there is room. */
void book_add_weight(struct book_entry *entry, struct backend_weight *weight);
/* More resident weights of the entry's shape, from other entries. */
void book_gather_weights(const struct book *book, struct book_entry *entry);
/* Whether it has taken so much time that a look at the book may choose it, without quiet. */
bool book_frequent(const struct book_entry *entry);
/* No entry names the weight any more. */
void book_weight_gone(struct book *book, struct backend_weight *weight);
/* No entry names the pin any more; those that did are forgotten. */
void book_pin_gone(struct book *book, const struct variant *pin);
/* The variant is wrong, which is remembered where there is room. */
void book_wrong(struct book_entry *entry, const struct variant *variant);
/* It has ended a worker, which is remembered in any case: before others. */
void book_killed(struct book_entry *entry, const struct variant *variant);
bool book_is_wrong(const struct book_entry *entry, const struct variant *variant);

/* The entry with a weight to tune with where most time is to be won: first those asked for, then kept ones and pins,
 * which cost little, then by the time spent above what the best bandwidth seen would allow, those that were raced
 * briefly, those that wait for a library, and then for what has to be compiled, last. NULL where none is left.
 * `ask_only`: only those asked for, and pins. `quiet`: those set aside, too, those for which something has to be
 * compiled, and those that take so little of all time that tuning them between requests would cost these more than it
 * gives; otherwise *waits says whether there are any. */
struct book_entry *book_next(struct book *book, bool ask_only, bool quiet, bool *waits);
/* Whether it is tuned but for kernels that have to be compiled. */
bool book_only_compiles(const struct book_entry *entry);
/* What a product takes where memory or arithmetic delivers all it can, in ns; 0: not known. */
uint64_t book_roof_ns(const struct variant_problem *problem, const struct backend_roof *roof);
