/* weight_list: a page of names. Whoever has many and a pattern that takes long does not hold up the loop: names are
 * looked at for some time, and further when everybody else has had a turn. */
#include "../context.h"
#include "cmd.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURN_NS = 1000000, LOOKED_AT_ONCE = 16, TURN_MESSAGES = 10 /* that a turn counts as */, NAP_MOST_MS = 100 };

struct listing {
  uv_timer_t timer;
  struct session *session; /* waits where there are several turns */
  uint32_t id;
  struct message_weight_list_request request; /* `after`: the last name that has been looked at */
  struct message_weight_list_reply reply;
  size_t room;
  uint64_t due_ms; /* of the next turn */
};

/* Bytes of one item on the wire, at most. */
static size_t item_bytes(const struct catalog_name *name) {
  return 220 + strlen(name->text) + 64 * (size_t)name->weight->part_count;
}

static bool is_wanted(const struct listing *listing, const struct catalog_name *name) {
  const char *pattern = listing->request.pattern;
  return catalog_may_use(name, listing->session->user) && (pattern[0] == '\0' || fnmatch(pattern, name->text, 0) == 0);
}

/* True where the page is full, or there are no more names. */
static bool look(struct listing *listing) {
  const struct catalog *catalog = &listing->session->supervisor->catalog;
  struct message_weight_list_reply *reply = &listing->reply;
  uint64_t end_ns = uv_hrtime() + TURN_NS;
  size_t at = listing->request.after[0] == '\0' ? 0 : catalog_after(catalog, listing->request.after);
  for (unsigned looked = 1; at < catalog->name_count; at++, looked++) {
    const struct catalog_name *name = &catalog->names[at];
    if (is_wanted(listing, name)) {
      if (reply->weights_count == LIMIT_PAGE_ITEMS || item_bytes(name) > listing->room) {
        reply->more = true;
        return true;
      }
      listing->room -= item_bytes(name);
      catalog_describe(name, &reply->weights[reply->weights_count++]);
    }
    if (looked % LOOKED_AT_ONCE == 0 && uv_hrtime() >= end_ns) {
      snprintf(listing->request.after, sizeof listing->request.after, "%s", name->text);
      return false;
    }
  }
  return true;
}

static void on_closed(uv_handle_t *handle) {
  free(handle->data);
}

static void on_turn(uv_timer_t *timer);

/* Not for long at a time: the session may end meanwhile. */
static void nap(struct listing *listing) {
  uint64_t now_ms = uv_now(&listing->session->supervisor->loop);
  uint64_t left_ms = listing->due_ms > now_ms ? listing->due_ms - now_ms : 1; /* 0 would run it before sockets */
  uv_timer_start(&listing->timer, on_turn, left_ms < NAP_MOST_MS ? left_ms : NAP_MOST_MS, 0);
}

static void wait_for_turn(struct listing *listing) {
  struct supervisor *supervisor = listing->session->supervisor;
  uint64_t now_ms = uv_now(&supervisor->loop);
  listing->due_ms =
      now_ms + user_spend_message(&supervisor->users, listing->session->account, TURN_MESSAGES - 1, now_ms);
  nap(listing);
}

static void on_turn(uv_timer_t *timer) {
  struct listing *listing = timer->data;
  struct session *session = listing->session;
  if (!session->ending && uv_now(&session->supervisor->loop) < listing->due_ms) {
    nap(listing);
    return;
  }
  if (!session->ending && !look(listing)) {
    wait_for_turn(listing);
    return;
  }
  session_reply(session, listing->id, &message_weight_list_reply_type, &listing->reply, NULL, 0);
  session_continue(session);
  uv_close((uv_handle_t *)timer, on_closed);
}

enum status cmd_weight_list(struct session *session, struct call *call) {
  struct listing *listing = calloc(1, sizeof *listing);
  if (listing == NULL)
    return error_set(&call->error, STATUS_NOMEM, "no memory for the request");
  listing->session = session;
  listing->id = call->id;
  listing->request = *(const struct message_weight_list_request *)call->body;
  listing->room = LIMIT_MESSAGE_BYTES - 1024;
  if (look(listing)) {
    enum status status = call_reply(session, call, &message_weight_list_reply_type, &listing->reply);
    free(listing);
    return status;
  }
  uv_timer_init(&session->supervisor->loop, &listing->timer);
  listing->timer.data = listing;
  session_wait(session);
  wait_for_turn(listing);
  return STATUS_OK;
}
