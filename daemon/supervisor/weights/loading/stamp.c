#include "stamp.h"

#include "../../../../proto/limits.h"
#include "../../net/foreign.h"

#include <blake2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTLED_NS ((int64_t)2000000000) /* file systems tell times as coarsely as that */

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* All of the request but what says where the weight goes, and to whom. */
static bool add_request(blake2b_state *state, const struct message_weight_load *request) {
  const struct message_head head = {.kind = MESSAGE_REQUEST, .code = COMMAND_weight_load};
  struct message_weight_load recipe = *request;
  uint8_t *bytes = malloc(LIMIT_MESSAGE_BYTES);
  size_t length = 0;
  struct error error;
  memset(recipe.name, 0, sizeof recipe.name);
  recipe.replace = recipe.progress = recipe.staged = recipe.trust = recipe.old_hash = recipe.raw = false;
  recipe.placement = recipe.devices = recipe.mode = 0;
  recipe.device = 0;
  bool good = bytes != NULL && message_encode(&head, &message_weight_load_type, &recipe, bytes, LIMIT_MESSAGE_BYTES,
                                              &length, &error) == STATUS_OK;
  if (good)
    blake2b_update(state, bytes, length);
  free(bytes);
  return good;
}

static bool add_file(blake2b_state *state, int fd, int64_t now) {
  struct foreign_facts facts;
  memset(&facts, 0, sizeof facts); /* holes between fields, too */
  if (!foreign_file_facts(fd, &facts) || facts.modified_ns > now - SETTLED_NS || facts.changed_ns > now - SETTLED_NS)
    return false;
  blake2b_update(state, (const uint8_t *)&facts, sizeof facts);
  return true;
}

void stamp_make(const struct message_weight_load *request, const struct load_files *files, uint32_t user,
                struct catalog_stamp *out) {
  int64_t now = now_ns();
  blake2b_state state;
  blake2b_init(&state, sizeof out->bytes);
  blake2b_update(&state, (const uint8_t *)&user, sizeof user);
  out->known = add_request(&state, request);
  for (size_t i = 0; out->known && i < files->count; i++)
    out->known = add_file(&state, files->fds[i], now);
  blake2b_final(&state, out->bytes, sizeof out->bytes);
}

void stamp_check(const struct message_weight_load *request, const struct load_files *files, uint32_t user,
                 struct catalog_stamp *stamp) {
  struct catalog_stamp after;
  stamp_make(request, files, user, &after);
  stamp->known = stamp->known && after.known && memcmp(stamp->bytes, after.bytes, sizeof after.bytes) == 0;
}
