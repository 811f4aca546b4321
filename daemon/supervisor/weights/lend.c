#include "lend.h"

#include "../../log.h"
#include "../context.h"
#include "../session/session.h"
#include "../workers/fleet.h"
#include "reclaim.h"
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct catalog_class lend_class(const struct supervisor *supervisor, struct catalog_class named) {
  const struct catalog_class none = {.mode = MODE_DEFAULT};
  return supervisor->rules.direct || named.owner == geteuid() ? named : none;
}

/* ---- descriptors */

static enum status descriptor_error(struct error *error) {
  if (errno == EMFILE || errno == ENFILE)
    return error_set(error, STATUS_BUSY, "gemmd has no descriptor left to lend a weight by at the moment");
  return error_set(error, STATUS_SYSTEM, "the memory of a weight cannot be lent: %s", strerror(errno));
}

/* A memfd is a file that its owner alone may open once its mode says so. */
static int open_for_reading(int slab) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", slab);
  return fchmod(slab, 0400) == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

enum status lend_descriptor(int slab, int *fd, struct error *error) {
  struct stat stat;
  if (fstat(slab, &stat) != 0)
    return descriptor_error(error);
  *fd = S_ISREG(stat.st_mode) ? open_for_reading(slab) : fcntl(slab, F_DUPFD_CLOEXEC, 0);
  return *fd >= 0 ? STATUS_OK : descriptor_error(error);
}

/* ---- damage */

static bool has_open(const struct session *session, const struct catalog_weight *weight) {
  for (size_t i = 0; i < session->opened.count; i++)
    if (session->opened.slots[i].weight == weight)
      return true;
  return false;
}

static void tell_borrower(struct session *session, const struct catalog_weight *weight, const char *what) {
  for (size_t i = 0; i < session->borrows.count && !session->ending; i++) {
    if (session->borrows.list[i].weight != weight)
      continue;
    struct message_weight_withdrawn event = {.borrow = session->borrows.list[i].id};
    snprintf(event.why, sizeof event.why, "the weight %.100s", what);
    session_event(session, EVENT_weight_withdrawn, &message_weight_withdrawn_type, &event);
  }
}

void lend_withdraw(struct supervisor *supervisor, struct catalog_weight *weight, const char *what) {
  struct catalog *catalog = &supervisor->catalog;
  const struct catalog_user root = {.uid = 0, .admin = true};
  struct session *session, *next;
  struct error error;
  for (size_t i = catalog->name_count; i-- > 0;) {
    struct catalog_weight *same;
    if (catalog->names[i].weight != weight)
      continue;
    log_error("the weight \"%s\" of user %u %s, and must be loaded again", catalog->names[i].text,
              catalog->names[i].owner, what);
    (void)!catalog_unname(catalog, catalog->names[i].text, root, &same, &error);
  }
  weight->withdrawn = true;
  supervisor->counts.withdrawn++;
  catalog_disown(catalog, weight);
  store_catalog(supervisor);
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = next) {
    next = TAILQ_NEXT(session, link);
    tell_borrower(session, weight, what);
    if (has_open(session, weight))
      session_end(session, "a weight that it has open must be loaded again");
  }
  if (catalog_unused(weight))
    reclaim_weight(supervisor, weight, NULL, NULL);
}

/* ---- what was lent may have been written to */

struct checking {
  struct supervisor *supervisor;
  uint32_t weight; /* its number: it may be gone by then */
  uint64_t checksum;
};

static void on_verified(void *user, struct worker_answer *answer) {
  struct checking *checking = user;
  struct supervisor *supervisor = checking->supervisor;
  struct catalog_weight *weight = catalog_find_id(&supervisor->catalog, checking->weight);
  bool damaged = answer->status == STATUS_OK && answer->body->weight_placed.checksum != checking->checksum;
  if (damaged && weight != NULL && !weight->withdrawn)
    lend_withdraw(supervisor, weight, "was damaged while it was lent");
  free(checking);
}

/* Where its worker sleeps, that is done when the device is quiet; where it is not there, the next one verifies it if it
 * has reason to. */
static void verify(struct supervisor *supervisor, struct catalog_weight *weight) {
  for (uint32_t i = 0; i < weight->part_count; i++) {
    const struct catalog_part *part = &weight->parts[i];
    struct worker *worker = &supervisor->fleet->workers[part->device];
    struct message_weight_id body = {.weight = weight->id};
    struct error error;
    weight->unverified |= worker->nap != NAP_NONE && part->checksum != 0;
    struct checking *checking = part->checksum != 0 && worker->state == WORKER_READY ? malloc(sizeof *checking) : NULL;
    if (checking == NULL)
      continue;
    *checking = (struct checking){.supervisor = supervisor, .weight = weight->id, .checksum = part->checksum};
    if (worker_ask(worker, COMMAND_weight_verify, &body, NULL, 0, on_verified, checking, &error) != STATUS_OK)
      free(checking);
  }
}

/* ---- the end of a borrow */

void lend_return(struct supervisor *supervisor, struct catalog_weight *weight) {
  weight->borrows--;
  if (catalog_unused(weight))
    reclaim_weight(supervisor, weight, NULL, NULL);
  else if (!weight->withdrawn && !supervisor->stopping)
    verify(supervisor, weight);
}

void lend_session_left(struct session *session) {
  struct borrows *borrows = &session->borrows;
  while (borrows->count > 0)
    lend_return(session->supervisor, borrows_remove(borrows, borrows->list[borrows->count - 1].id));
  borrows_free(borrows);
}
