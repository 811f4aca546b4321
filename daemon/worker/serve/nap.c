#include "nap.h"

#include <stdbool.h>

enum { PART = 8, LEAST_NS = 5000, MOST_NS = 1000000 };

uint64_t nap_choose(const struct nap_wait *wait) {
  bool alert = wait->expected_ns > 0 && wait->alert_ns > 0;
  uint64_t from = alert && wait->expected_ns > wait->alert_ns ? wait->expected_ns - wait->alert_ns : 0;
  uint64_t until = wait->expected_ns + wait->alert_ns, waited = wait->now_ns - wait->began_ns;
  if (alert && wait->now_ns >= from && wait->now_ns < until)
    return 0;
  if (alert && wait->now_ns >= until && wait->now_ns - wait->expected_ns < waited)
    waited = wait->now_ns - wait->expected_ns;
  uint64_t nap = waited / PART < LEAST_NS ? LEAST_NS : waited / PART > MOST_NS ? MOST_NS : waited / PART;
  return alert && wait->now_ns < from && from - wait->now_ns < nap ? from - wait->now_ns : nap;
}
