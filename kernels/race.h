/* Who is fastest: heats of several candidates, of whom the third with the least lower quartile of what was measured so
 * far goes on (successive halving, by three: Jamieson and Talwalkar, "Non-stochastic best arm identification and
 * hyperparameter optimization", 2016), and finals of the best ones against the one that serves, or that has won a
 * final, in the order A B B A, so that a drift of the clock meets both. What disturbs a sample makes it longer: so a
 * quarter of them undisturbed keeps a candidate in the heats. Finals go by medians, and the quartiles may not speak
 * against them. Pure: says what to measure next and is told the result. */
#pragma once

#include "variant.h"

enum { RACE_MOST = 3072, RACE_SAMPLES = 64 };

enum race_state {
  RACE_UNCHECKED, /* its results have not been compared with the reference */
  RACE_RUNNING,
  RACE_OUT,   /* slower than others */
  RACE_WRONG, /* its results were wrong, or it failed */
};

struct race_candidate {
  struct variant variant;
  enum race_state state;
  uint32_t count;                 /* samples taken, of all heats */
  uint64_t samples[RACE_SAMPLES]; /* ns of one launch; the latest */
};

enum race_verb { RACE_CHECK, RACE_TIME, RACE_REFINE, RACE_OVER };

/* What to do next: compare candidate `who` with the reference, time one sample of it, ask the backend for variants of
 * the best ones, or nothing more. */
struct race_step {
  enum race_verb verb;
  int who;
};

struct race {
  struct race_candidate candidates[RACE_MOST]; /* 0: the one that serves */
  int count;
  bool all;            /* nobody leaves the heats but who is far behind at once: to judge the shortcut by */
  bool brief;          /* another one follows: variants of the best are asked for twice at most, and finals are short */
  uint32_t iterations; /* samples of each candidate at least, in heats and in a final; 0: as few as decide */
  uint64_t fastest;    /* sample of all */
  int refinements;     /* how often the backend was asked for variants of the best */
  int known;           /* candidates before it was asked last */
  bool hurry;          /* the time is up: on to the final, as soon as the winner has somebody to meet */
  int heat;
  bool final;
  int finals;            /* so far */
  int challenger;        /* in the final, against `winner` */
  uint32_t final_rounds; /* A B B A: two samples of each */
  uint32_t final_turn;
  bool over;
  int winner;
  double gain; /* how often as fast as candidate 0 the winner is, by the finals that it and those before it have won */
  int guest;   /* is in a last final whatever the heats say; -1: nobody */
  bool guest_met;
};

/* `first` serves at present. */
void race_start(struct race *race, const struct variant *first, bool all);
/* Ignores what is in the race already. False where there is no room. */
bool race_add(struct race *race, const struct variant *variant);
/* A candidate that is to be compared with the winner, so that both have times of the same moments. */
void race_invite(struct race *race, const struct variant *variant);
/* More have come when it was over: who has been beaten stays out, the winner is challenged again. */
void race_reopen(struct race *race);
struct race_step race_next(struct race *race);
void race_checked(struct race *race, int who, bool right);
void race_timed(struct race *race, int who, uint64_t ns);
/* It could not run: it is out, and what serves stays where it was in the final. */
void race_failed(struct race *race, int who);
/* After RACE_REFINE; variants have been added or not. */
void race_refined(struct race *race);
/* The time is up: what is known decides who is in the final. Where nobody is known yet, the best guess is; so what
 * takes all the time to be compared is found all the same, where it is a first guess. */
void race_hurry(struct race *race);
/* The best few, least median first, for reports; returns how many. */
int race_best(const struct race *race, int *who, int most);
/* The same by lower quartiles, as heats are decided. */
int race_ahead(const struct race *race, int *who, int most);

/* Median of the samples in ns; 0 where there is none. */
uint64_t race_median(const struct race_candidate *candidate);
/* Half the distance between the quartiles, relative to the median. */
double race_spread(const struct race_candidate *candidate);
