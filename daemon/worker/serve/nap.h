/* How long an engine sleeps whose products are on the device. Pure. */
#pragma once

#include <stdint.h>

struct nap_wait {
  uint64_t began_ns, now_ns; /* since when there has been nothing to do */
  uint64_t expected_ns;      /* when the oldest product should end, as those like it did; 0: nobody says */
  uint64_t alert_ns;         /* before and behind that time it is looked for without sleeping; 0: never */
};

/* 0: not at all. An eighth of the wait so far, or of the delay, so that a nap costs a product an eighth of its time at
 * most; and no longer than until the alert begins. */
uint64_t nap_choose(const struct nap_wait *wait);
