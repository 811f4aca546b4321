#include "verify.h"

#include "../context.h"
#include "../workers/fleet.h"

enum { REST = 10 /* times as long as a comparison took, before the next one */ };

void verify_init(struct verify *verify, struct supervisor *supervisor,
                 void (*damaged)(struct supervisor *supervisor, struct catalog_weight *weight, const char *what)) {
  *verify = (struct verify){.supervisor = supervisor, .damaged = damaged};
}

static const struct catalog_part *part_on(const struct catalog_weight *weight, uint32_t device) {
  for (uint32_t i = 0; i < weight->part_count; i++)
    if (weight->parts[i].device == device && weight->parts[i].checksum != 0)
      return &weight->parts[i];
  return NULL;
}

static bool is_candidate(const struct catalog_weight *weight, uint32_t device) {
  return (weight->borrows > 0 || weight->unverified) && !weight->withdrawn && part_on(weight, device) != NULL;
}

/* The candidate of the lowest number above `after`; NULL: there is none. */
static struct catalog_weight *next_of(const struct catalog *catalog, uint32_t device, uint32_t after, bool returned) {
  struct catalog_weight *next = NULL;
  for (size_t i = 0; i < catalog->weight_count; i++) {
    struct catalog_weight *weight = catalog->weights[i];
    if (weight->id > after && is_candidate(weight, device) && (!returned || weight->unverified) &&
        (next == NULL || weight->id < next->id))
      next = weight;
  }
  return next;
}

/* What was given back while the worker slept does not wait for the next round. */
static struct catalog_weight *next_weight(const struct verify *verify, const struct supervisor *supervisor,
                                          uint32_t device, uint64_t now_ms) {
  struct catalog_weight *returned = next_of(&supervisor->catalog, device, 0, true);
  if (returned != NULL)
    return returned;
  if (supervisor->config->verify_s == 0 || (!verify->running && now_ms < verify->next_ms))
    return NULL;
  return next_of(&supervisor->catalog, device, verify->running ? verify->after : 0, false);
}

bool verify_due(const struct verify *verify, const struct supervisor *supervisor, uint32_t device, uint64_t now_ms) {
  return verify->asked || next_weight(verify, supervisor, device, now_ms) != NULL;
}

static void on_answer(void *user, struct worker_answer *answer) {
  struct verify *verify = user;
  struct catalog_weight *weight = catalog_find_id(&verify->supervisor->catalog, verify->weight);
  uint64_t now_ms = uv_now(&verify->supervisor->loop);
  verify->asked = false;
  verify->next_ms = now_ms + REST * (now_ms - verify->asked_ms);
  if (answer->status != STATUS_OK || weight == NULL || weight->withdrawn)
    return;
  weight->unverified = false;
  verify->verified++;
  if (answer->body->weight_placed.checksum == verify->checksum)
    return;
  verify->damaged_count++;
  verify->damaged(verify->supervisor, weight, "was damaged while it was lent");
}

void verify_go_on(struct verify *verify, struct supervisor *supervisor, struct worker *worker, uint64_t now_ms) {
  struct error error;
  if (verify->asked || now_ms < verify->next_ms)
    return;
  struct catalog_weight *weight = next_weight(verify, supervisor, worker->device, now_ms);
  if (weight == NULL) {
    if (verify->running)
      verify->next_ms = now_ms + (uint64_t)supervisor->config->verify_s * 1000;
    verify->running = false;
    return;
  }
  struct message_weight_id body = {.weight = weight->id};
  if (worker_ask(worker, COMMAND_weight_verify, &body, NULL, 0, on_answer, verify, &error) != STATUS_OK)
    return;
  verify->running |= !weight->unverified;
  verify->after = weight->unverified ? verify->after : weight->id;
  verify->asked = true;
  verify->weight = weight->id;
  verify->checksum = part_on(weight, worker->device)->checksum;
  verify->asked_ms = now_ms;
}
