#include "restarts.h"

enum { WINDOW_MS = 60000, DOUBLINGS = 6 };

static bool window_over(const struct restarts *restarts, uint64_t now_ms) {
  if (restarts->pauses > 0)
    return restarts->served_ms != 0 && now_ms - restarts->served_ms > WINDOW_MS;
  return restarts->recent == 0 || now_ms - restarts->since_ms > WINDOW_MS;
}

bool restarts_at_once(const struct restarts *restarts, uint32_t most, uint64_t now_ms) {
  return most > 0 && (window_over(restarts, now_ms) || (restarts->pauses == 0 && restarts->recent < most));
}

void restarts_served(struct restarts *restarts, uint64_t now_ms) {
  restarts->served_ms = now_ms;
}

void restarts_forget(struct restarts *restarts) {
  *restarts = (struct restarts){.recent = 0};
}

uint64_t restarts_pause_ms(struct restarts *restarts, uint32_t most, uint64_t longest_ms, uint64_t now_ms,
                           uint32_t random) {
  bool at_once = restarts_at_once(restarts, most, now_ms);
  if (window_over(restarts, now_ms))
    *restarts = (struct restarts){.since_ms = now_ms};
  restarts->served_ms = 0;
  if (at_once) {
    restarts->recent++;
    return 0;
  }
  uint32_t doublings = restarts->pauses < DOUBLINGS ? restarts->pauses : DOUBLINGS;
  restarts->pauses += restarts->pauses < UINT32_MAX;
  uint64_t pause_ms = longest_ms >> (DOUBLINGS - doublings);
  /* A pause is at most a day, 27 bits of milliseconds. */
  pause_ms = pause_ms / 2 + ((pause_ms - pause_ms / 2) * random >> 32);
  return pause_ms > 0 ? pause_ms : 1;
}
