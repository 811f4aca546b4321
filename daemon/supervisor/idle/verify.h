/* Comparing what was lent of one device with what was loaded, one weight after the other, each time that the device is
 * quiet and the last round is long enough ago. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct catalog_weight;
struct supervisor;
struct worker;

struct verify {
  struct supervisor *supervisor;
  void (*damaged)(struct supervisor *supervisor, struct catalog_weight *weight, const char *what);
  bool asked;        /* an answer is due, */
  uint32_t weight;   /* about that one, */
  uint64_t checksum; /* which should be this */
  uint64_t asked_ms; /* since */
  bool running;      /* a round is under way */
  uint32_t after;    /* the last one of it */
  uint64_t next_ms;  /* not before: the next weight, or the next round */
  uint64_t verified, damaged_count;
};

void verify_init(struct verify *verify, struct supervisor *supervisor,
                 void (*damaged)(struct supervisor *supervisor, struct catalog_weight *weight, const char *what));
/* Whether there is something to compare on the device now. */
bool verify_due(const struct verify *verify, const struct supervisor *supervisor, uint32_t device, uint64_t now_ms);
/* Asks the worker, which serves, for the next one where it is time. */
void verify_go_on(struct verify *verify, struct supervisor *supervisor, struct worker *worker, uint64_t now_ms);
