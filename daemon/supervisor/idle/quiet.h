/* When a device that clients compute on themselves may be used for what nobody waits for. Pure: time is a parameter.
 *
 * What gemmd does then can be seen by whoever looks at the device's utilization, itself included: so it works for a
 * while, stops, looks, and only then goes on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define QUIET_TURN_NS 2000000000u   /* of work between two looks at the utilization */
#define QUIET_SETTLE_NS 1500000000u /* until the utilization speaks of others alone again */

/* What is seen of a device at a time. */
struct quiet_sight {
  uint64_t now_ns;         /* of CLOCK_MONOTONIC */
  uint64_t quiet_ns;       /* that it has to be left alone for */
  uint64_t pause_until_ns; /* all who use it leave it alone until then; 0: they do not say so */
  uint64_t products;       /* that clients have told of */
  bool hidden;             /* these are not all: what replays a CUDA graph tells of nothing */
  bool measured;           /* `busy` is known */
  bool busy;               /* somebody's kernels have run lately */
};

enum quiet_why {
  QUIET_ALLOWED, /* it may be used */
  QUIET_PAUSED,  /* it may, as long as those who use it pause */
  QUIET_IN_USE,  /* it has not been left alone for long enough */
  QUIET_BLIND,   /* nobody can say whether it is in use */
  QUIET_LOOKING  /* it was used for what nobody waits for, and is looked at again */
};

/* Of one device; zeros: nothing is known. */
struct quiet {
  bool seen;
  uint64_t products;
  uint64_t since_ns; /* nobody has been seen to use it */
  uint64_t turn_ns;  /* when the last turn ends, or ended; 0: there was none since */
  enum quiet_why why;
};

/* Until when it may be used, as of now: 0 where it may not. */
uint64_t quiet_look(struct quiet *quiet, const struct quiet_sight *sight);
/* For gemmctl status. */
const char *quiet_text(enum quiet_why why);
