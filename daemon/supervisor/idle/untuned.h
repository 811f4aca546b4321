/* Shapes of one device that clients compute themselves and its worker may not have tuned yet: kept here, since the
 * worker may be asleep, or be replaced before it is done. Pure. */
#pragma once

#include "../../../proto/wire/message.h"

#include <stdbool.h>
#include <stdint.h>

enum { UNTUNED_MOST = 256 }; /* where there are more, the oldest goes */

struct untuned {
  struct untuned_shape *list; /* owned; in order of coming */
  uint32_t count;
};

void untuned_free(struct untuned *untuned);
/* One more, or the kernel that was found for one that there is. Where there is no memory, it is as if it had not come.
 */
void untuned_add(struct untuned *untuned, const struct message_weight_seen *seen);
/* The next one that the worker has not been told of, which is marked as told; NULL: none. Valid until the next call. */
const struct message_weight_seen *untuned_tell(struct untuned *untuned);
/* The worker is another one, which has been told nothing. */
void untuned_again(struct untuned *untuned);
/* Whatever the worker was told of is tuned, or cannot be. */
void untuned_done(struct untuned *untuned);
