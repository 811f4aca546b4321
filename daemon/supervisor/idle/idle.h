/* What is done for devices that direct clients use while these leave them alone: background tuning, and a comparison of
 * what was lent with what was loaded; and whether a worker that nobody asks for anything goes to sleep, and is started
 * for that work. */
#pragma once

#include "../../../proto/wire/message.h"

#include <stdint.h>

struct catalog_weight;
struct idle;
struct supervisor;
struct session;

struct idle_hooks {
  /* The bytes of the weight are not those that were loaded. */
  void (*damaged)(struct supervisor *supervisor, struct catalog_weight *weight, const char *what);
};

/* Starts to look; NULL where there is no memory, which is logged: then nothing of it is done. */
struct idle *idle_start(struct supervisor *supervisor, const struct idle_hooks *hooks);
/* No more looks. NULL: nothing. */
void idle_stop(struct idle *idle);
/* After the loop has ended. NULL: nothing. */
void idle_free(struct idle *idle);

/* Fills what a device's status says of sleep, quiet and verification. NULL: nothing. */
void idle_describe(const struct idle *idle, uint32_t device, struct message_device_status *out);
