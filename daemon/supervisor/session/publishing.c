#include "publishing.h"

#include "../../../proto/shm/published.h"
#include "../../memfd.h"
#include "../context.h"
#include "../workers/fleet.h"
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  LOOK_MS = 100,      /* an engine's pause may be short */
  TAKEN_AT_ONCE = 64, /* of one ring: a client that fills it without end is heard no faster */
};

/* ---- tables */

/* From now on nobody else can make it writable: this process' mapping stays. */
static enum status seal(int fd, struct error *error) {
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
    return STATUS_OK;
  return error_set(error, STATUS_SYSTEM, "the table of kernels cannot be sealed: %s", strerror(errno));
}

static enum status make_table(struct publishing_table *table, struct error *error) {
  uint64_t bytes = published_bytes(PUBLISHED_ROWS);
  int fd;
  enum status status = memfd_make_open("gemmd-tunings", bytes, &fd, error);
  if (status != STATUS_OK)
    return status;
  void *memory = memfd_map(fd, bytes, true, error);
  status = memory != NULL ? seal(fd, error) : error->status;
  if (status != STATUS_OK) {
    if (memory != NULL)
      munmap(memory, bytes);
    close(fd);
    return status;
  }
  published_init(memory, PUBLISHED_ROWS);
  *table = (struct publishing_table){.memory = memory, .fd = fd};
  return STATUS_OK;
}

enum status publishing_table(struct supervisor *supervisor, uint32_t device, int *fd, struct error *error) {
  struct publishing_table *table = &supervisor->publishing->tables[device];
  enum status status = table->memory == NULL ? make_table(table, error) : STATUS_OK;
  if (status == STATUS_OK)
    *fd = table->fd;
  return status;
}

void publishing_found(struct supervisor *supervisor, uint32_t device, const struct message_tuning_found *found) {
  struct publishing_table *table = &supervisor->publishing->tables[device];
  struct published_row row = {
      .kind = (enum published_kind)found->kind, .kernel_ns = found->kernel_ns, .built_in_ns = found->built_in_ns};
  struct error error;
  if (table->memory == NULL && (found->kind == PUBLISHED_NONE || make_table(table, &error) != STATUS_OK))
    return; /* whoever asks for the table hears why it cannot be made */
  if (found->kind == PUBLISHED_NONE) {
    published_remove(table->memory, found->shape);
    return;
  }
  memcpy(row.shape, found->shape, sizeof row.shape);
  memcpy(row.identity, found->identity, sizeof row.identity);
  memcpy(row.kernel, found->kernel, sizeof row.kernel);
  memcpy(row.built_in, found->built_in, sizeof row.built_in);
  published_put(table->memory, &row);
}

/* ---- rings */

static void keep(struct session *session, const struct catalog_weight *weight, const struct message_weight_seen *seen) {
  struct publishing *publishing = session->supervisor->publishing;
  for (uint32_t i = 0; i < weight->part_count; i++)
    untuned_add(&publishing->untuned[weight->parts[i].device], seen);
}

static void look(struct session *session) {
  struct seen_entry seen;
  for (int i = 0; i < TAKEN_AT_ONCE && seen_take(&session->ring.taker, &seen); i++) {
    const struct catalog_weight *weight = borrows_find(&session->borrows, seen.borrow);
    if (weight == NULL)
      continue;
    struct message_weight_seen body = {.weight = weight->id,
                                       .m = seen.m,
                                       .x_type = seen.x_type,
                                       .y_type = seen.y_type,
                                       .bias_type = seen.bias_type,
                                       .user = session->user.uid};
    keep(session, weight, &body);
  }
}

static bool is_plain(const char *text) {
  while (*text >= ' ' && *text <= '~')
    text++;
  return *text == '\0';
}

enum status publishing_propose(struct session *session, const struct message_tune_propose *proposal,
                               struct error *error) {
  const struct catalog_weight *weight = borrows_find(&session->borrows, proposal->borrow);
  if (weight == NULL)
    return error_set(error, STATUS_NOT_FOUND, "borrow %u stands for nothing", proposal->borrow);
  if (!is_plain(proposal->kernel))
    return error_set(error, STATUS_INVALID, "the name of a kernel is plain ASCII");
  struct message_weight_seen body = {.weight = weight->id,
                                     .m = proposal->m,
                                     .x_type = proposal->x_type,
                                     .y_type = proposal->y_type,
                                     .bias_type = proposal->bias_type,
                                     .user = session->user.uid};
  memcpy(body.kernel, proposal->kernel, sizeof body.kernel);
  keep(session, weight, &body);
  return STATUS_OK;
}

static void on_timer(uv_timer_t *timer) {
  struct supervisor *supervisor = timer->data;
  struct session *session;
  for (session = TAILQ_FIRST(&supervisor->sessions->list); session != NULL; session = TAILQ_NEXT(session, link))
    if (session->ring.taker.memory != NULL)
      look(session);
}

enum status publishing_ring(struct session *session, int *fd, struct error *error) {
  struct publishing *publishing = session->supervisor->publishing;
  struct session_ring *ring = &session->ring;
  if (ring->taker.memory != NULL) {
    *fd = ring->fd;
    return STATUS_OK;
  }
  enum status status = memfd_make("gemmd-shapes", SEEN_BYTES, &ring->fd, error);
  if (status != STATUS_OK)
    return status;
  ring->taker.memory = memfd_map(ring->fd, SEEN_BYTES, true, error);
  if (ring->taker.memory == NULL) {
    close(ring->fd);
    return error->status;
  }
  seen_init(ring->taker.memory);
  *fd = ring->fd;
  if (publishing->rings++ == 0)
    uv_timer_start(&publishing->timer, on_timer, LOOK_MS, LOOK_MS);
  return STATUS_OK;
}

void publishing_session_left(struct session *session) {
  struct publishing *publishing = session->supervisor->publishing;
  struct session_ring *ring = &session->ring;
  if (ring->taker.memory == NULL)
    return;
  munmap(ring->taker.memory, SEEN_BYTES);
  close(ring->fd);
  ring->taker.memory = NULL;
  if (--publishing->rings == 0 && !session->supervisor->stopping)
    uv_timer_stop(&publishing->timer);
}

/* ---- begin and end */

void publishing_init(struct supervisor *supervisor) {
  uv_timer_init(&supervisor->loop, &supervisor->publishing->timer);
  supervisor->publishing->timer.data = supervisor;
}

void publishing_stop(struct supervisor *supervisor) {
  uv_close((uv_handle_t *)&supervisor->publishing->timer, NULL);
}

void publishing_free(struct supervisor *supervisor) {
  for (uint32_t i = 0; i < LIMIT_DEVICES; i++) {
    untuned_free(&supervisor->publishing->untuned[i]);
    struct publishing_table *table = &supervisor->publishing->tables[i];
    if (table->memory == NULL)
      continue;
    munmap(table->memory, published_bytes(PUBLISHED_ROWS));
    close(table->fd);
    table->memory = NULL;
  }
}
