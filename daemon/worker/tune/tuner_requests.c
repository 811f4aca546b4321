#include "tuner_requests.h"

#include "../../log.h"
#include "tuner_current.h"
#include "tuner_kept.h"
#include "tuner_publish.h"
#include "tuner_saves.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static const char *state_text(const struct book_entry *entry) {
  static const char *const names[] = {"seen", "kept", "tuned", "failed"};
  return entry->pin != NULL && entry->state != BOOK_FAILED ? "pinned" : names[entry->state];
}

static void describe(struct tuner *tuner, const struct book_entry *entry, struct tune_shape *out) {
  *out = (struct tune_shape){.state = state_text(entry),
                             .serves = entry->serves,
                             .confirmed = entry->confirmed,
                             .tuning = entry == tuner->current,
                             .calls = entry->calls,
                             .device_ns = entry->device_ns,
                             .own_ns = entry->own_ns,
                             .tuned_ns = entry->tuned_ns,
                             .library_ns = entry->library_ns,
                             .roof_ns = tuner_roof_ns(tuner, &entry->problem)};
  variant_problem_text(&entry->problem, out->shape);
  variant_text(entry->pin != NULL ? entry->pin : &entry->variant, out->kernel);
  snprintf(out->why, sizeof out->why, "%s", entry->why);
}

static void list(struct tuner *tuner, struct tune_request *request) {
  uint32_t at = request->from;
  request->count = 0;
  for (; at < BOOK_ENTRIES && request->count < TUNE_PAGE; at++)
    if (tuner->book.entries[at].used)
      describe(tuner, &tuner->book.entries[at], &request->page[request->count++]);
  request->next = at < BOOK_ENTRIES ? at : 0;
}

/* A page of what the last search has tried. */
static enum status trials(struct tuner *tuner, struct engine_message *message) {
  struct tune_request *request = message->tune;
  const struct tune_table *table = &tuner->table;
  if (table->open)
    return error_set(&message->error, STATUS_BUSY, "a search is under way: its table is there when it has ended");
  if (table->count == 0)
    return error_set(&message->error, STATUS_NOT_FOUND, "no search that was asked for has ended on this device");
  if (request->search != 0 && request->search != table->search)
    return error_set(&message->error, STATUS_NOT_FOUND,
                     "the table of search %llu is gone: the last one is search %llu, of %s",
                     (unsigned long long)request->search, (unsigned long long)table->search, table->shape);
  uint32_t left = request->from < table->count ? table->count - request->from : 0;
  request->search = table->search;
  request->roof_ns = table->roof_ns;
  request->total = table->count;
  request->count = left < TUNE_PAGE ? left : TUNE_PAGE;
  request->next = left > TUNE_PAGE ? request->from + TUNE_PAGE : 0;
  memcpy(request->shape, table->shape, sizeof request->shape);
  memcpy(request->trials, table->rows + request->from, request->count * sizeof *table->rows);
  return STATUS_OK;
}

static enum status check_by_hand(struct tuner *tuner, const struct variant_problem *problem, const char *text,
                                 struct variant *out, struct error *error) {
  struct variant nearest = {.family = NULL};
  char near[VARIANT_TEXT_BYTES];
  enum status status = variant_parse(tuner->options.ops->families, text, out, error);
  if (status != STATUS_OK)
    return status;
  status = tuner->options.ops->variant_check(tuner->options.backend, problem, out, &nearest, error);
  if (status == STATUS_OK || nearest.family == NULL)
    return status;
  static const char other[] = "; nearest that can: ";
  struct error reason = *error;
  int room = (int)(sizeof reason.text - sizeof other) - (int)strlen(variant_text(&nearest, near));
  return error_set(error, status, "%.*s%s%s", room > 40 ? room : 40, reason.text, other, near);
}

static struct book_entry *visit(struct tuner *tuner, const struct variant_problem *problem) {
  const struct book_visit nobodys = {.user = BOOK_NOBODY, .now_ns = tuner->last_request_ns};
  return book_visit(&tuner->book, problem, NULL, &nobodys);
}

static enum status ask(struct tuner *tuner, struct engine_message *message) {
  struct tune_request *request = message->tune;
  struct variant hand;
  request->problem.weight = request->weight->shape;
  request->problem.m = variant_bucket(request->problem.m);
  if (request->text[0] != '\0' &&
      check_by_hand(tuner, &request->problem, request->text, &hand, &message->error) != STATUS_OK)
    return message->error.status;
  struct book_entry *entry = visit(tuner, &request->problem);
  if (entry == NULL)
    return error_set(&message->error, STATUS_NOMEM, "no room for one more shape");
  book_add_weight(entry, request->weight->device);
  entry->asked = true;
  message->next = NULL;
  if (tuner->asks_last != NULL)
    tuner->asks_last->next = message;
  else
    tuner->asks = message;
  tuner->asks_last = message;
  if (tuner->ask == NULL)
    tuner_leave(tuner); /* whoever waits goes first */
  return STATUS_OK;
}

static void forget(struct tuner *tuner, struct tune_request *request) {
  char shape[VARIANT_TEXT_BYTES];
  request->count = 0;
  for (uint32_t i = 0; i < BOOK_ENTRIES; i++) {
    struct book_entry *entry = &tuner->book.entries[i];
    bool tried = entry == tuner->current, awaited = tried && tuner->ask != NULL;
    if (!entry->used || entry->pin != NULL || awaited ||
        fnmatch(request->text, variant_problem_text(&entry->problem, shape), 0) != 0)
      continue;
    if (tried)
      tuner_leave(tuner);
    bool asked = entry->asked;
    tuner_unkeep(tuner, entry);
    tuner_unpublish(tuner, entry);
    struct book_entry fresh = {.problem = entry->problem,
                               .used = true,
                               .user = entry->user,
                               .seen_ns = entry->seen_ns,
                               .asked = asked,
                               .calls = entry->calls,
                               .device_ns = entry->device_ns,
                               .weight_count = entry->weight_count};
    memcpy(fresh.weights, entry->weights, sizeof fresh.weights);
    *entry = fresh;
    request->count++;
  }
}

static enum status import(struct tuner *tuner, struct engine_message *message) {
  struct tune_request *request = message->tune;
  struct variant_problem problem;
  struct variant variant;
  enum status status = variant_problem_parse(request->shape, &problem, &message->error);
  if (status == STATUS_OK)
    status = check_by_hand(tuner, &problem, request->text, &variant, &message->error);
  if (status != STATUS_OK)
    return status;
  struct book_entry *entry = visit(tuner, &problem);
  if (entry == NULL)
    return error_set(&message->error, STATUS_NOMEM, "no room for one more shape");
  if (entry->state == BOOK_TUNED || entry == tuner->current)
    return STATUS_OK; /* what was measured here is better than what was measured elsewhere */
  entry->variant = variant;
  entry->state = BOOK_KEPT;
  entry->confirmed = entry->serves = false;
  tuner_keep(tuner, entry);
  return STATUS_OK;
}

/* One more candidate, for which a shape is raced again. A kernel that cannot be is nobody's but the client's affair. */
static void propose(struct tuner *tuner, struct book_entry *entry, const char *text) {
  char shape[VARIANT_TEXT_BYTES];
  struct variant variant;
  struct error error;
  if (check_by_hand(tuner, &entry->problem, text, &variant, &error) != STATUS_OK) {
    log_info("kernel %s, which a client has found for %s, is not tried: %s", text,
             variant_problem_text(&entry->problem, shape), error.text);
    return;
  }
  if (variant_equal(&variant, &entry->variant) || book_is_wrong(entry, &variant))
    return;
  if (entry == tuner->current && tuner->ask == NULL)
    tuner_leave(tuner);
  entry->proposed = variant;
  if (entry->state == BOOK_TUNED)
    entry->state = BOOK_SEEN;
}

/* As if it had been served, but for the time that it takes. */
static void note_seen(struct tuner *tuner, struct tune_request *request) {
  const struct engine_weight *weight = request->weight;
  const struct book_visit visit = {.user = request->user, .now_ns = clock_ns()};
  request->problem.weight = weight->shape;
  request->problem.m = variant_bucket(request->problem.m);
  struct book_entry *entry = book_visit(&tuner->book, &request->problem, weight->pin, &visit);
  if (entry == NULL)
    return;
  book_add_weight(entry, weight->device);
  if (request->text[0] != '\0')
    propose(tuner, entry, request->text);
}

void tuner_unpin(struct tuner *tuner, struct engine_weight *weight) {
  const struct variant *pin = weight->pin;
  weight->pin = NULL;
  if (pin == NULL)
    return;
  if (tuner->current != NULL && tuner->current->pin == pin)
    tuner_leave(tuner);
  if (tune_pin_last(tuner->pins, pin))
    book_pin_gone(&tuner->book, pin);
  tune_pin_drop(&tuner->pins, pin);
}

/* A kernel for some numbers of rows alone is set for these, and others are computed as ever. One that takes none is
 * refused by the reason that one row is refused for. */
static enum status check_pin(struct tuner *tuner, const struct gemm_weight *weight, const char *text,
                             struct variant *out, struct error *error) {
  enum { ROWS_MOST = 4096 };
  enum gemm_type type = gemm_takes_x(weight->format, GEMM_F16) ? GEMM_F16 : GEMM_BF16;
  struct variant_problem problem = {.weight = *weight, .m = 1, .x_type = type, .y_type = type};
  struct error reason, ignored;
  enum status status = check_by_hand(tuner, &problem, text, out, &reason);
  if (status == STATUS_OK)
    return STATUS_OK;
  while (problem.m < ROWS_MOST) {
    problem.m = variant_bucket(problem.m + 1);
    if (check_by_hand(tuner, &problem, text, out, &ignored) == STATUS_OK)
      return STATUS_OK;
  }
  *error = reason;
  return status;
}

static enum status pin(struct tuner *tuner, struct engine_message *message) {
  struct tune_request *request = message->tune;
  struct engine_weight *weight = request->weight;
  struct variant variant;
  enum status status = request->text[0] == '\0'
                           ? STATUS_OK
                           : variant_parse(tuner->options.ops->families, request->text, &variant, &message->error);
  if (status == STATUS_NOT_FOUND) /* which says of a pin that its weight is gone */
    message->error.status = STATUS_UNSUPPORTED;
  if (status != STATUS_OK || weight == NULL)
    return message->error.status;
  if (request->text[0] == '\0') {
    tuner_unpin(tuner, weight);
    return STATUS_OK;
  }
  status = check_pin(tuner, &weight->shape, request->text, &variant, &message->error);
  if (status != STATUS_OK)
    return status;
  tuner_unpin(tuner, weight);
  weight->pin = tune_pin_take(&tuner->pins, &variant);
  return weight->pin != NULL ? STATUS_OK : error_set(&message->error, STATUS_NOMEM, "no memory for a pin");
}

void tuner_request(struct tuner *tuner, struct engine_message *message) {
  message->error.status = STATUS_OK;
  if (message->tune->verb != TUNE_ALLOW) {
    tuner->settled = false;
    atomic_store_explicit(&tuner->has_work, true, memory_order_release);
  }
  tuner->waiting = false;
  switch (message->tune->verb) {
  case TUNE_LIST:
    list(tuner, message->tune);
    break;
  case TUNE_ASK:
    if (ask(tuner, message) == STATUS_OK)
      return;
    break;
  case TUNE_FORGET:
    forget(tuner, message->tune);
    break;
  case TUNE_IMPORT:
    (void)import(tuner, message);
    break;
  case TUNE_PIN:
    (void)pin(tuner, message);
    break;
  case TUNE_TRIALS:
    (void)trials(tuner, message);
    break;
  case TUNE_SEEN:
    note_seen(tuner, message->tune);
    break;
  case TUNE_ALLOW:
    tuner->allowed_until_ns = message->tune->until_ns;
    break;
  case TUNE_FOLLOW:
    tuner_follow(tuner, message->tune->outside, message->tune->faults);
    break;
  }
  tuner->options.notify(tuner->options.user, message);
}

void tuner_cancel_asks(struct tuner *tuner, const struct engine_weight *weight) {
  struct engine_message *kept = NULL, *last = NULL;
  for (struct engine_message *each = tuner->asks, *next; each != NULL; each = next) {
    next = each->next;
    each->next = NULL;
    if (weight != NULL && each->tune->weight != weight) {
      *(last != NULL ? &last->next : &kept) = each;
      last = each;
    } else {
      (void)error_set(&each->error, STATUS_CANCELLED, "the weight was unloaded, or the worker ends");
      tuner->options.notify(tuner->options.user, each);
    }
  }
  tuner->asks = kept;
  tuner->asks_last = last;
}
