#include "usage.h"

#include "../context.h"
#include "../session/session.h"
#include "../weights/loading/loads.h"
#include "../weights/loading/placer.h"

static bool lies_on(const struct catalog_weight *weight, uint32_t device) {
  for (uint32_t i = 0; i < weight->part_count; i++)
    if (weight->parts[i].device == device)
      return true;
  return false;
}

static bool borrows_there(const struct session *session, uint32_t device) {
  for (size_t i = 0; i < session->borrows.count; i++)
    if (lies_on(session->borrows.list[i].weight, device))
      return true;
  return false;
}

static bool has_open_there(const struct session *session, uint32_t device) {
  for (size_t i = 0; i < session->opened.count; i++)
    if (opened_at(&session->opened, i) != 0 && session->opened.slots[i].device == device)
      return true;
  for (size_t i = 0; i < LIMIT_SESSION_TENSORS; i++)
    if (session->tensors.slots[i].taken && session->tensors.slots[i].device == device)
      return true;
  return false;
}

static bool is_loading(const struct supervisor *supervisor) {
  return !TAILQ_EMPTY(&supervisor->loads->running) || !TAILQ_EMPTY(&supervisor->loads->waiting.entries) ||
         !TAILQ_EMPTY(&supervisor->placer->line);
}

static void add_direct(struct usage *usage, const struct session *session, uint32_t device, uint64_t now_ns) {
  struct seen_device said = {.pause_until_ns = 0};
  if (session->ring.taker.memory != NULL)
    said = seen_device(session->ring.taker.memory, device, now_ns);
  if (!usage->direct || said.pause_until_ns < usage->pause_until_ns)
    usage->pause_until_ns = said.pause_until_ns;
  usage->products += said.products;
  usage->direct = true;
}

struct usage usage_of(const struct supervisor *supervisor, uint32_t device, uint64_t now_ns) {
  struct usage usage = {.served = is_loading(supervisor)};
  const struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = TAILQ_NEXT(session, link)) {
    if (borrows_there(session, device))
      add_direct(&usage, session, device, now_ns);
    usage.served |= has_open_there(session, device);
  }
  return usage;
}
