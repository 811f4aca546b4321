#include "again.h"
#include "../session/exchange.h"

#include <string.h>

static bool same_weight(const struct gemmd_weight *weight, const struct message_weight_info *now) {
  if (memcmp(weight->info.hash, now->hash, sizeof now->hash) != 0 || now->parts_count != weight->part_count ||
      now->placement != (uint32_t)weight->placement)
    return false;
  for (uint32_t i = 0; i < weight->part_count; i++)
    if (now->parts[i].device != weight->parts[i].device || now->parts[i].n_begin != weight->parts[i].n_begin ||
        now->parts[i].n_count != weight->parts[i].n_count || now->parts[i].handle < MESSAGE_HANDLE_LEAST)
      return false;
  return true;
}

/* Of something else: back to the daemon. What it says of that changes nothing. */
static void give_back(struct gemmd_session *session, const struct message_weight_info *opened) {
  struct message_weight_close request = {.parts_count = opened->parts_count};
  struct message_empty reply;
  memcpy(request.parts, opened->parts, sizeof request.parts);
  struct call call = {.command = COMMAND_weight_close, .request = &request, .reply = &reply, .fd = -1};
  (void)!exchange_call(session, &call);
}

enum status weight_open_again(struct gemmd_weight *weight) {
  struct gemmd_session *session = weight->session;
  struct message_weight_name request = {.name = ""};
  struct message_weight_info reply = {.n = 0};
  memcpy(request.name, weight->info.name, sizeof request.name);
  struct call call = {.command = COMMAND_weight_open, .request = &request, .reply = &reply, .fd = -1};
  enum status status = exchange_call(session, &call);
  if (status != STATUS_OK)
    return status;
  if (!same_weight(weight, &reply)) {
    give_back(session, &reply);
    return session->ended ? session_gone(session)
                          : error_set(&session->error, STATUS_NOT_FOUND,
                                      "the weight \"%.128s\" is another one at the next daemon", weight->info.name);
  }
  for (uint32_t i = 0; i < weight->part_count; i++)
    weight->next_handles[i] = reply.parts[i].handle;
  weight->missing = false;
  return STATUS_OK;
}

enum status weight_stand_in(struct gemmd_weight *weight) {
  struct gemmd_session *session = weight->session;
  for (uint32_t i = 0; i < weight->part_count; i++) {
    if (session->stand_ins + 1 >= MESSAGE_HANDLE_LEAST)
      return error_set(&session->error, STATUS_TOO_LARGE, "the next daemon lacks more weights than can be kept open");
    weight->next_handles[i] = ++session->stand_ins;
  }
  weight->missing = true;
  return STATUS_OK;
}
