#include "quiet.h"

static bool was_used(const struct quiet *quiet, const struct quiet_sight *sight) {
  bool own = quiet->turn_ns != 0 && sight->now_ns < quiet->turn_ns + QUIET_SETTLE_NS;
  return !quiet->seen || sight->products != quiet->products || (sight->measured && sight->busy && !own);
}

static uint64_t turn(struct quiet *quiet, const struct quiet_sight *sight) {
  bool over = quiet->turn_ns != 0 && sight->now_ns >= quiet->turn_ns;
  if (sight->hidden && over && sight->now_ns < quiet->turn_ns + QUIET_SETTLE_NS) {
    quiet->why = QUIET_LOOKING;
    return 0;
  }
  if (!sight->hidden || quiet->turn_ns == 0 || over) /* where all is told of, there is no need to stop for a look */
    quiet->turn_ns = sight->now_ns + QUIET_TURN_NS;
  quiet->why = QUIET_ALLOWED;
  return quiet->turn_ns;
}

/* Whoever paused goes on. */
static void end_pause(struct quiet *quiet, uint64_t now_ns) {
  if (quiet->why != QUIET_PAUSED)
    return;
  quiet->since_ns = now_ns;
  if (quiet->turn_ns > now_ns)
    quiet->turn_ns = now_ns;
}

uint64_t quiet_look(struct quiet *quiet, const struct quiet_sight *sight) {
  if (was_used(quiet, sight)) {
    quiet->since_ns = sight->now_ns;
    quiet->turn_ns = 0;
  }
  quiet->seen = true;
  quiet->products = sight->products;
  if (sight->pause_until_ns > sight->now_ns) {
    quiet->why = QUIET_PAUSED;
    quiet->turn_ns = sight->pause_until_ns;
    return sight->pause_until_ns;
  }
  end_pause(quiet, sight->now_ns);
  if (sight->hidden && !sight->measured) {
    quiet->why = QUIET_BLIND;
    return 0;
  }
  if (sight->now_ns - quiet->since_ns < sight->quiet_ns) {
    quiet->why = QUIET_IN_USE;
    return 0;
  }
  return turn(quiet, sight);
}

const char *quiet_text(enum quiet_why why) {
  switch (why) {
  case QUIET_ALLOWED:
    return "quiet";
  case QUIET_PAUSED:
    return "its engines pause";
  case QUIET_IN_USE:
    return "in use by direct clients";
  case QUIET_BLIND:
    return "not known to be quiet: there is no NVML, and no engine says that it pauses";
  case QUIET_LOOKING:
    return "quiet, being looked at again";
  }
  return "";
}
