#include "users.h"

#include "../../list.h"

#include <stdlib.h>

enum {
  MILLI = 1000,
  BURST_S = 2 /* the messages of so many seconds may come at once */,
  DEBT_MOST_MS = 3600000,
  LINES_WINDOW_MS = 10000,
  LINES_MOST = 50
};

void users_init(struct users *users, const struct config *config) {
  *users = (struct users){.config = config};
}

void users_free(struct users *users) {
  size_t kept = 0;
  for (size_t i = 0; i < users->count; i++)
    if (atomic_load(&users->list[i]->closing) == 0)
      free(users->list[i]);
    else
      users->list[kept++] = users->list[i];
  users->count = kept;
  if (kept > 0)
    return;
  free(users->list);
  users_init(users, users->config);
}

static int64_t rate(const struct users *users) {
  return users->config->user_messages_per_s;
}

static void fill(const struct users *users, struct user *user, uint64_t now_ms) {
  int64_t most = rate(users) * BURST_S * MILLI, passed = (int64_t)(now_ms - user->filled_ms);
  user->filled_ms = now_ms;
  if (passed > DEBT_MOST_MS)
    passed = DEBT_MOST_MS;
  user->tokens_milli += passed * rate(users);
  if (user->tokens_milli > most)
    user->tokens_milli = most;
}

/* Who is remembered although no session is left: whose tokens would be full again if it were forgotten, whose lines in
 * the log would be none, or whose descriptors are being closed. */
static bool forgettable(const struct users *users, struct user *user, uint64_t now_ms) {
  if (user->references > 0 || atomic_load(&user->closing) > 0 ||
      (user->lines > 0 && now_ms - user->lines_since_ms < LINES_WINDOW_MS))
    return false;
  fill(users, user, now_ms);
  return user->tokens_milli == rate(users) * BURST_S * MILLI;
}

static void forget_some(struct users *users, uint64_t now_ms) {
  for (size_t i = users->count; i-- > 0;) {
    if (!forgettable(users, users->list[i], now_ms))
      continue;
    free(users->list[i]);
    users->list[i] = users->list[--users->count];
  }
}

struct user *users_enter(struct users *users, uint32_t uid, bool admin, uint64_t now_ms) {
  for (size_t i = 0; i < users->count; i++) {
    if (users->list[i]->uid != uid || users->list[i]->admin != admin)
      continue;
    users->list[i]->references++;
    return users->list[i];
  }
  forget_some(users, now_ms);
  struct error ignored;
  enum status status =
      list_grow(&users->list, users->count, &users->capacity, sizeof(struct user *), "a user", &ignored);
  struct user *user = status == STATUS_OK ? malloc(sizeof *user) : NULL;
  if (user == NULL)
    return NULL;
  *user = (struct user){
      .uid = uid, .admin = admin, .references = 1, .tokens_milli = rate(users) * BURST_S * MILLI, .filled_ms = now_ms};
  users->list[users->count++] = user;
  return user;
}

void users_leave(struct users *users, struct user *user, uint64_t now_ms) {
  user->references--;
  forget_some(users, now_ms);
}

/* ---- caps */

static enum status over(const struct user *user, const char *what, uint64_t held, uint64_t more, uint64_t most,
                        struct error *error) {
  return error_set(error, STATUS_BUSY, "user %u may have %llu %s, has %llu and asks for %llu more", user->uid,
                   (unsigned long long)most, what, (unsigned long long)held, (unsigned long long)more);
}

/* `cap` 0: none. */
static enum status check(const struct user *user, const char *what, uint64_t held, uint64_t more, int64_t cap,
                         struct error *error) {
  uint64_t most = (uint64_t)cap;
  if (user->admin || cap == 0 || (held <= most && more <= most - held))
    return STATUS_OK;
  return over(user, what, held, more, most, error);
}

enum status user_add_session(const struct users *users, struct user *user, struct error *error) {
  enum status status = check(user, "sessions", user->sessions, 1, users->config->user_sessions_max, error);
  user->sessions += status == STATUS_OK;
  return status;
}

enum status user_add_load(const struct users *users, struct user *user, struct error *error) {
  enum status status = check(user, "loads under way", user->loads, 1, users->config->user_loads_max, error);
  user->loads += status == STATUS_OK;
  return status;
}

enum status user_add_search(struct user *user, struct error *error) {
  if (!user->admin && user->searches > 0)
    return error_set(error, STATUS_BUSY, "user %u has a search for a kernel under way, and may have one at a time",
                     user->uid);
  user->searches++;
  return STATUS_OK;
}

enum status user_add_arena(const struct users *users, struct user *user, uint64_t bytes, uint64_t entries,
                           struct error *error) {
  enum status status =
      check(user, "bytes of arenas", user->arena_bytes, bytes, users->config->user_arena_bytes_max, error);
  if (status == STATUS_OK)
    status = check(user, "requests in flight", user->entries, entries, users->config->user_requests_max, error);
  if (status != STATUS_OK)
    return status;
  user->arena_bytes += bytes;
  user->entries += entries;
  return STATUS_OK;
}

enum status user_check_device(const struct users *users, const struct user *user, uint64_t held, uint64_t more,
                              struct error *error) {
  return check(user, "bytes of device memory", held, more, users->config->user_device_bytes_max, error);
}

enum status user_check_name(const struct users *users, const struct user *user, uint64_t held, struct error *error) {
  return check(user, "names of weights", held, 1, users->config->user_names_max, error);
}

uint32_t user_spend_message(const struct users *users, struct user *user, size_t more, uint64_t now_ms) {
  if (user->admin)
    return 0;
  fill(users, user, now_ms);
  user->tokens_milli -= MILLI * (1 + (int64_t)more);
  return user->tokens_milli >= 0 ? 0 : (uint32_t)(-user->tokens_milli / rate(users) + 1);
}

bool user_may_log(struct user *user, uint64_t now_ms, uint32_t *left_out) {
  *left_out = 0;
  if (now_ms - user->lines_since_ms >= LINES_WINDOW_MS) {
    *left_out = user->lines_left_out;
    user->lines_since_ms = now_ms;
    user->lines = user->lines_left_out = 0;
  }
  if (user->lines < LINES_MOST) {
    user->lines++;
    return true;
  }
  user->lines_left_out++;
  return false;
}
