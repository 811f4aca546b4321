/* The race: who wins with a good clock, a noisy one, and against planted cheats. */
#include "kernels/race.h"

#include "tests/support/reference/oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct variant_family family = {
    .name = "test", .count = 1, .parameters = {{"number", "of the candidate", 0, 1000, 1, 0}}};

static struct race race;

static struct variant numbered(int number) {
  struct variant variant = {.family = &family};
  variant.values[0] = number;
  return variant;
}

struct track {
  const uint64_t *times; /* of each candidate, ns */
  double noise;          /* of the clock, relative */
  double drift;          /* that the clock gains from one sample to the next, relative */
  double accidents;      /* part of the samples that something else makes up to eleven times as long */
  int wrong;             /* who computes wrong results; -1: nobody */
  uint64_t random;
  int samples;
};

static void add(int count) {
  struct variant first = numbered(0);
  race_start(&race, &first, race.all);
  for (int i = 1; i < count; i++) {
    struct variant next = numbered(i);
    assert_true(race_add(&race, &next));
  }
}

/* Runs it to its end; who won. */
static int run(struct track *track) {
  for (int steps = 0; steps < 100000; steps++) {
    struct race_step step = race_next(&race);
    if (step.verb == RACE_OVER)
      return step.who;
    if (step.verb == RACE_REFINE) {
      race_refined(&race);
    } else if (step.verb == RACE_CHECK) {
      race_checked(&race, step.who, step.who != track->wrong);
    } else {
      double factor = 1 + track->noise * oracle_uniform(&track->random) + track->drift * track->samples++;
      if ((oracle_uniform(&track->random) + 1) / 2 < track->accidents)
        factor += 5 * (oracle_uniform(&track->random) + 1);
      race_timed(&race, step.who, (uint64_t)((double)track->times[step.who] * factor));
    }
  }
  fail_msg("the race does not end");
  return -1;
}

static void test_the_fastest_wins(void **state) {
  uint64_t times[40];
  for (int best = 1; best < 40; best++) {
    for (int i = 0; i < 40; i++)
      times[i] = 10000 + (uint64_t)(i * 7919 % 40) * 100;
    times[best] = 8000;
    struct track track = {.times = times, .noise = 0.01, .wrong = -1, .random = (uint64_t)best};
    add(40);
    assert_int_equal(run(&track), best);
  }
}

/* Everybody who is timed at all gets the samples that are asked for, more than decide, also in a final. */
static void test_as_many_samples_as_are_asked_for(void **state) {
  uint64_t times[12];
  for (int i = 0; i < 12; i++)
    times[i] = 10000 + (uint64_t)i * 3000;
  for (uint32_t asked = 5; asked <= 95; asked += 30) {
    struct track track = {.times = times, .noise = 0.01, .wrong = 7, .random = asked};
    times[5] = 8000;
    add(12);
    assert_int_equal(race.iterations, 0);
    race.iterations = asked;
    assert_int_equal(run(&track), 5);
    for (int i = 0; i < 12; i++)
      assert_true(i == 7 ? race.candidates[i].count == 0 : race.candidates[i].count >= asked);
  }
}

static void test_fewer_samples_than_exhaustive(void **state) {
  uint64_t times[64];
  int samples[2];
  for (int i = 0; i < 64; i++)
    times[i] = 10000 + (uint64_t)(i * 37 % 64) * 500;
  times[50] = 7000;
  for (int all = 0; all < 2; all++) {
    struct track track = {.times = times, .noise = 0.01, .wrong = -1, .random = 5};
    race.all = all;
    add(64);
    assert_int_equal(run(&track), 50);
    samples[all] = track.samples;
  }
  race.all = false;
  assert_true(samples[0] < samples[1] / 2);
}

/* What is a thousand times slower is known after one sample, even where nobody leaves. */
static void test_far_behind(void **state) {
  uint64_t times[] = {10000, 9000, 9000000, 70000};
  struct track track = {.times = times, .noise = 0.005, .wrong = -1};
  race.all = true;
  add(4);
  assert_int_equal(run(&track), 1);
  assert_int_equal(race.candidates[2].count, 1);
  assert_true(race.candidates[3].count > 1);
  add(4);
  race.iterations = 5; /* asked for: of everybody */
  assert_int_equal(run(&track), 1);
  assert_int_equal(race.candidates[2].count, 5);
  race.all = false;
}

static void test_less_than_two_percent_changes_nothing(void **state) {
  uint64_t times[] = {10000, 9850, 9830, 9900};
  struct track track = {.times = times, .wrong = -1};
  add(4);
  assert_int_equal(run(&track), 0);
}

/* Who comes later has to beat the winner, not what served before that. */
static void test_one_percent_more_than_the_winner(void **state) {
  uint64_t times[] = {10000, 9000, 8870, 8820};
  struct track track = {.times = times, .wrong = -1};
  add(2);
  assert_int_equal(run(&track), 1);
  for (int late = 2; late < 4; late++) {
    struct variant next = numbered(late);
    race_reopen(&race);
    assert_true(race_add(&race, &next));
    assert_int_equal(run(&track), 2);
  }
}

static void test_wrong_never_wins(void **state) {
  uint64_t times[] = {10000, 100, 9000, 9500};
  struct track track = {.times = times, .noise = 0.005, .wrong = 1};
  add(4);
  assert_int_equal(run(&track), 2);
  assert_int_equal(race.candidates[1].state, RACE_WRONG);
  assert_int_equal(race.candidates[1].count, 0);
}

static void test_slow_leaves_early(void **state) {
  uint64_t times[] = {10000, 9000, 900000, 9500, 9600};
  struct track track = {.times = times, .noise = 0.005, .wrong = -1};
  add(5);
  assert_int_equal(run(&track), 1);
  assert_int_equal(race.candidates[2].state, RACE_OUT);
  assert_true(race.candidates[2].count <= 3); /* of the first heat */
}

/* How often one of candidates as fast as the one that serves wins, in 200 races of `track`'s clock. */
static int chance_wins(struct track track) {
  uint64_t times[16];
  int changed = 0;
  for (int i = 0; i < 16; i++)
    times[i] = 10000;
  track.times = times;
  for (uint64_t seed = 0; seed < 200; seed++) {
    struct track one = track;
    one.random = seed;
    add(16);
    changed += run(&one) != 0;
  }
  return changed;
}

/* A clock that is off by up to 40 %: chance must not win. */
static void test_noise_does_not_win(void **state) {
  assert_true(chance_wins((struct track){.noise = 0.4, .wrong = -1}) <= 4);
}

/* The same where accidents make samples longer, and nothing makes one shorter. */
static void test_accidents_do_not_win(void **state) {
  assert_true(chance_wins((struct track){.noise = 0.02, .accidents = 0.3, .wrong = -1}) <= 4);
}

/* And it may not hide a real gain, nor may a slower one win by it. */
static void test_noise_hides_little(void **state) {
  uint64_t times[] = {10000, 6000, 12000, 13000};
  int found = 0;
  for (uint64_t seed = 0; seed < 100; seed++) {
    struct track track = {.times = times, .noise = 0.3, .wrong = -1, .random = seed};
    add(4);
    int winner = run(&track);
    assert_true(winner == 0 || winner == 1);
    found += winner == 1;
  }
  assert_true(found >= 90);
}

/* A machine that does something else beside: what is lost is seldom, and what wins is never slower. */
static void test_accidents_hide_little(void **state) {
  uint64_t times[40];
  int found = 0;
  for (int i = 0; i < 40; i++)
    times[i] = 10000 + (uint64_t)(i * 7919 % 40) * 200;
  times[17] = 7000;
  for (uint64_t seed = 0; seed < 200; seed++) {
    struct track track = {.times = times, .noise = 0.01, .accidents = 0.3, .wrong = -1, .random = seed};
    add(40);
    int winner = run(&track);
    assert_true(times[winner] <= 10400);
    found += winner == 17;
  }
  assert_true(found >= 190);
}

/* Those that come late begin as the others did: with few samples. */
static void test_late_ones_begin_anew(void **state) {
  uint64_t times[40];
  struct track track = {.times = times, .noise = 0.005, .wrong = -1, .random = 9};
  struct race_step step;
  for (int i = 0; i < 40; i++)
    times[i] = 10000 + (uint64_t)i * 300;
  times[21] = 8000;
  add(20);
  while ((step = race_next(&race)).verb != RACE_REFINE) {
    if (step.verb == RACE_CHECK)
      race_checked(&race, step.who, true);
    else
      race_timed(&race, step.who, times[step.who]);
  }
  for (int i = 20; i < 40; i++) {
    struct variant next = numbered(i);
    assert_true(race_add(&race, &next));
  }
  race_refined(&race);
  assert_int_equal(run(&track), 21);
  for (int i = 30; i < 40; i++)
    assert_true(race.candidates[i].count <= 3);
}

/* To the end; each time that it asks for more it gets one, the next by number. How often it asked. */
static int run_refining(const uint64_t *times) {
  int asked = 0;
  add(3);
  for (struct race_step step = race_next(&race); step.verb != RACE_OVER; step = race_next(&race)) {
    struct variant next = numbered(3 + asked);
    if (step.verb == RACE_REFINE) {
      assert_true(race_add(&race, &next));
      asked++;
      race_refined(&race);
    } else if (step.verb == RACE_CHECK) {
      race_checked(&race, step.who, true);
    } else {
      race_timed(&race, step.who, times[step.who]);
    }
  }
  return asked;
}

/* Candidates on a line, each 2.5 % faster than the one before: what is asked for are neighbours of the leader, for as
 * long as one of them leads, but not for ever. */
static void test_refines_while_it_helps(void **state) {
  uint64_t times[12];
  for (int i = 0; i < 12; i++)
    times[i] = 10000 - (uint64_t)i * 250;
  assert_int_equal(run_refining(times), 3);
  assert_int_equal(race.winner, 5);
  times[3] = 20000; /* the first neighbour is no better */
  assert_int_equal(run_refining(times), 1);
  assert_int_equal(race.winner, 2);
}

/* Another race follows: less than three quarters of the samples, and the winner is the same or within 2 %. */
static void test_a_brief_race(void **state) {
  uint64_t times[16];
  int samples[2] = {0}, found = 0;
  for (int i = 0; i < 16; i++)
    times[i] = 10000 + (uint64_t)(i * 7919 % 16) * 150;
  times[0] = 10500;
  times[9] = 9500;
  for (int round = 0; round < 200; round++)
    for (int brief = 0; brief < 2; brief++) {
      struct track track = {.times = times, .noise = 0.01, .accidents = 0.03, .wrong = -1, .random = (uint64_t)round};
      add(16);
      race.brief = brief == 1;
      int winner = run(&track);
      assert_int_equal(race.refinements, 1);
      samples[brief] += track.samples;
      found += brief == 1 && times[winner] <= 9690;
    }
  assert_true(4 * samples[1] < 3 * samples[0]);
  assert_true(found >= 195);
}

static void test_drift_does_not_win(void **state) {
  uint64_t times[] = {10000, 10000, 10000};
  struct track track = {.times = times, .drift = -0.002, .wrong = -1};
  add(3);
  assert_int_equal(run(&track), 0);
}

static void test_hurry_still_has_a_final(void **state) {
  uint64_t times[] = {10000, 5000, 7000};
  struct track track = {.times = times, .wrong = -1};
  add(3);
  for (int i = 0; i < 3; i++) {
    struct race_step step = race_next(&race);
    assert_int_equal(step.verb, RACE_CHECK);
    race_checked(&race, step.who, true);
  }
  for (int i = 0; i < 3; i++) {
    struct race_step step = race_next(&race);
    assert_int_equal(step.verb, RACE_TIME);
    race_timed(&race, step.who, times[step.who]);
  }
  race_hurry(&race);
  assert_int_equal(run(&track), 1);
  assert_true(race.candidates[1].count >= 12);
}

/* The time was up before anything was known: the first guess that is right meets what serves, nobody else is looked
 * at, and a time is known of both. */
static void test_hurry_tries_the_best_guess(void **state) {
  uint64_t times[] = {10000, 1000, 5000, 1000, 1000};
  struct track track = {.times = times, .wrong = 1};
  add(5);
  race_hurry(&race);
  assert_int_equal(run(&track), 2);
  assert_true(race.candidates[0].count >= 12);
  assert_true(race.candidates[2].count >= 12);
  assert_int_equal(race.candidates[3].count, 0);
  assert_int_equal(race.candidates[3].state, RACE_UNCHECKED);
  times[2] = 10000;
  add(3);
  race_hurry(&race);
  assert_int_equal(run(&track), 0);
  assert_true(race_median(&race.candidates[0]) == 10000);
}

/* What a library has comes when the time is up already: what it names first has its final. */
static void test_hurry_after_it_was_over(void **state) {
  uint64_t times[] = {10000, 8000, 9000, 5000, 4000};
  struct track track = {.times = times, .wrong = -1};
  add(3);
  assert_int_equal(run(&track), 1);
  race_reopen(&race);
  for (int i = 3; i < 5; i++) {
    struct variant next = numbered(i);
    assert_true(race_add(&race, &next));
  }
  race_hurry(&race);
  assert_int_equal(run(&track), 3);
  assert_int_equal(race.candidates[4].count, 0);
}

/* How much was won is said by the finals, where both have times of the same moments. */
static void test_gain(void **state) {
  uint64_t times[] = {10000, 8000, 9000, 5000, 6000};
  struct track track = {.times = times, .wrong = -1};
  add(3);
  assert_int_equal(run(&track), 1);
  assert_true(fabs(race.gain - 1.25) < 1e-9);
  for (int i = 0; i < 5; i++)
    times[i] *= 2; /* the machine does something else now */
  race_reopen(&race);
  struct variant late = numbered(3);
  assert_true(race_add(&race, &late));
  assert_int_equal(run(&track), 3);
  assert_true(fabs(race.gain - 2) < 1e-9);
  race_reopen(&race);
  struct variant slower = numbered(4);
  assert_true(race_add(&race, &slower));
  assert_int_equal(run(&track), 3);
  assert_true(fabs(race.gain - 2) < 1e-9);
  times[0] = times[1];
  add(1);
  assert_int_equal(run(&track), 0);
  assert_true(race.gain == 1);
}

/* What was invited has times of the same moments as the winner, though the heats dropped it. */
static void test_a_guest_meets_the_winner(void **state) {
  uint64_t times[] = {10000, 5000, 20000, 7000, 8000};
  struct track track = {.times = times, .noise = 0.005, .wrong = -1};
  add(5);
  struct variant guest = numbered(2);
  race_invite(&race, &guest);
  assert_int_equal(run(&track), 1);
  assert_true(race.candidates[2].count >= 12);
}

static void test_nobody_is_added_twice(void **state) {
  add(3);
  struct variant again = numbered(2);
  assert_true(race_add(&race, &again));
  assert_int_equal(race.count, 3);
}

static void test_best_are_in_order(void **state) {
  int who[3];
  add(6);
  for (int i = 0; i < 6; i++) {
    race_checked(&race, i, i != 3);
    race_timed(&race, i, (uint64_t)(1000 - i * 100));
  }
  assert_int_equal(race_best(&race, who, 3), 3);
  assert_int_equal(who[0], 5);
  assert_int_equal(who[1], 4);
  assert_int_equal(who[2], 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_fastest_wins),
      cmocka_unit_test(test_as_many_samples_as_are_asked_for),
      cmocka_unit_test(test_fewer_samples_than_exhaustive),
      cmocka_unit_test(test_far_behind),
      cmocka_unit_test(test_less_than_two_percent_changes_nothing),
      cmocka_unit_test(test_one_percent_more_than_the_winner),
      cmocka_unit_test(test_wrong_never_wins),
      cmocka_unit_test(test_slow_leaves_early),
      cmocka_unit_test(test_noise_does_not_win),
      cmocka_unit_test(test_noise_hides_little),
      cmocka_unit_test(test_accidents_do_not_win),
      cmocka_unit_test(test_accidents_hide_little),
      cmocka_unit_test(test_late_ones_begin_anew),
      cmocka_unit_test(test_refines_while_it_helps),
      cmocka_unit_test(test_a_brief_race),
      cmocka_unit_test(test_drift_does_not_win),
      cmocka_unit_test(test_hurry_still_has_a_final),
      cmocka_unit_test(test_hurry_tries_the_best_guess),
      cmocka_unit_test(test_hurry_after_it_was_over),
      cmocka_unit_test(test_gain),
      cmocka_unit_test(test_a_guest_meets_the_winner),
      cmocka_unit_test(test_nobody_is_added_twice),
      cmocka_unit_test(test_best_are_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
