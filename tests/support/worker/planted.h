/* Kernels planted before a tuner over the real CPU backend: the CPU's own product, and then a crime; a clock that says
 * what the test wants; and a library that keeps everybody waiting for its list. */
#pragma once

#include "tuning.h"

#include <semaphore.h>

enum crime { HONEST, WRONG, ONLY_RAGGED, BEHIND, UNWRITTEN, MIXED_ROWS, FAILING, FAULTING, HANGING, UNBUILT, CRIMES };

extern const struct variant_family planted_family, planted_foreign;

struct planted {
  uint64_t times[CRIMES]; /* that the clock says, ns */
  bool offered[CRIMES];
  uint64_t own_time; /* of the backend's own choice */
  double noise;      /* of the clock, relative */
  uint64_t randomness;
  int launched[CRIMES];
  bool convicted; /* the honest one has turned wrong */
  int64_t rows;   /* below which none can run */
  sem_t may_list; /* one post a list of the library */
  uint64_t foreign_time;
  int foreign_launches;
  uint64_t timing_ns;    /* that a measurement really takes; 0: next to nothing */
  int timed;             /* measurements */
  int warmed;            /* those of more launches than a sample has */
  int trials;            /* products computed or timed, of any kernel */
  uint32_t trials_awake; /* `awake` of all of them together */
};
extern struct planted planted;

/* Replaces functions of `tuning.ops`. `unseen`: no test has seen the kernels, so that they have to be proven in a
 * process of their own. The fixture does it for those that have been seen. */
void planted_plant(bool unseen);

/* Fixtures of a test: device, weight and folder; no tuner yet. */
int planted_set_up(void **state);
int planted_tear_down(void **state);

/* Before the tuner is opened: the search finds this one; the clock says `time`. */
void planted_offer(enum crime crime, uint64_t time);
/* Puts the library there; its fastest kernel takes `time`. */
void planted_library(uint64_t time);
/* The same, and those that are offered have to be compiled first, and no test has seen them. */
void planted_compiled(uint64_t time);
/* What it finds is kept in the fixture's folder. */
void planted_open(enum tune_mode mode);
/* The same after another that died, or was killed from outside. */
void planted_follow(enum tune_mode mode, bool outside);
/* What serves TUNING_ROWS rows. */
const struct variant *planted_serving(void);
enum crime planted_crime(const struct variant *variant);
