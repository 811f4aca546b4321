#include "arena.h"

#include "../../log.h"
#include "../../memfd.h"
#include "../net/closing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, WAKE_PATIENCE_US = 10000 };

void arena_init(struct arena *arena) {
  memset(arena, 0, sizeof *arena);
  arena->memfd = arena->wakeup = -1;
  for (uint32_t i = 0; i < LIMIT_DEVICES; i++)
    arena->doorbells[i] = -1;
}

static enum status make_event(int *fd, struct error *error) {
  *fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return *fd >= 0 ? STATUS_OK : error_set(error, STATUS_SYSTEM, "eventfd: %s", strerror(errno));
}

static enum status make_events(struct arena *arena, struct error *error) {
  enum status status = make_event(&arena->wakeup, error);
  for (uint32_t i = 0; status == STATUS_OK && i < arena->devices; i++)
    status = make_event(&arena->doorbells[i], error);
  return status;
}

static enum status check_request(uint32_t entries, uint64_t tensor_bytes, uint64_t tensor_bytes_max,
                                 struct error *error) {
  if (tensor_bytes == 0 || tensor_bytes > tensor_bytes_max)
    return error_field(error, tensor_bytes == 0 ? STATUS_INVALID : STATUS_TOO_LARGE, FIELD_BYTES,
                       tensor_bytes > INT64_MAX ? INT64_MAX : (int64_t)tensor_bytes, 1, (int64_t)tensor_bytes_max);
  if (entries == 0 || entries > LIMIT_RING_ENTRIES)
    return error_field(error, STATUS_INVALID, FIELD_ENTRIES, entries, 1, LIMIT_RING_ENTRIES);
  if ((entries & (entries - 1)) != 0) {
    (void)error_field(error, STATUS_INVALID, FIELD_ENTRIES, entries, 1, LIMIT_RING_ENTRIES);
    snprintf(error->text, sizeof error->text, "entries must be a power of two of 1..%u, got %u", LIMIT_RING_ENTRIES,
             entries);
    return STATUS_INVALID;
  }
  return STATUS_OK;
}

/* The rest, once there is a memfd of `bytes`. On failure all is closed. */
static enum status lay_out(struct arena *arena, uint32_t devices, uint32_t entries, uint64_t bytes,
                           struct error *error) {
  arena->devices = devices;
  arena->entries = entries;
  arena->bytes = bytes;
  arena->ring_bytes = ring_tensor_offset(entries, devices);
  enum status status = make_events(arena, error);
  if (status == STATUS_OK && (arena->rings = memfd_map(arena->memfd, arena->ring_bytes, true, error)) == NULL)
    status = error->status;
  if (status != STATUS_OK) {
    arena_close(arena);
    return status;
  }
  memset(arena->rings, 0, (size_t)arena->ring_bytes);
  ring_format(arena->rings, devices, entries, bytes);
  for (uint32_t i = 0; i < devices; i++)
    arena->generations[i] = arena->published[i] = 1;
  return STATUS_OK;
}

enum status arena_open(struct arena *arena, uint32_t devices, uint32_t entries, uint64_t tensor_bytes,
                       uint64_t tensor_bytes_max, struct error *error) {
  arena_init(arena);
  enum status status = check_request(entries, tensor_bytes, tensor_bytes_max, error);
  if (status != STATUS_OK)
    return status;
  uint64_t bytes = gemm_round_up(ring_tensor_offset(entries, devices) + tensor_bytes, PAGE_BYTES);
  status = ring_check(devices, entries, bytes, error);
  if (status == STATUS_OK)
    status = memfd_make("gemmd-arena", bytes, &arena->memfd, error);
  return status == STATUS_OK ? lay_out(arena, devices, entries, bytes, error) : status;
}

enum status arena_adopt(struct arena *arena, int memfd, uint32_t devices, uint32_t entries, uint64_t bytes,
                        uint64_t tensor_bytes_max, struct error *error) {
  arena_init(arena);
  uint64_t ring_bytes = 0;
  enum status status = check_request(entries, bytes, UINT64_MAX, error);
  if (status == STATUS_OK)
    ring_bytes = ring_tensor_offset(entries, devices);
  if (status == STATUS_OK && (bytes % PAGE_BYTES != 0 || bytes <= ring_bytes))
    status = error_set(error, STATUS_INVALID, "an arena is whole pages and larger than its rings of %llu, got %llu",
                       (unsigned long long)ring_bytes, (unsigned long long)bytes);
  if (status == STATUS_OK)
    status = check_request(entries, bytes - ring_bytes, gemm_round_up(tensor_bytes_max, PAGE_BYTES), error);
  if (status == STATUS_OK)
    status = ring_check(devices, entries, bytes, error);
  if (status == STATUS_OK)
    status = memfd_check_foreign(memfd, bytes, error);
  if (status != STATUS_OK)
    return status;
  arena->memfd = fcntl(memfd, F_DUPFD_CLOEXEC, 0);
  if (arena->memfd < 0)
    return error_set(error, STATUS_BUSY, "gemmd has no descriptor for another arena at the moment");
  return lay_out(arena, devices, entries, bytes, error);
}

void arena_close(struct arena *arena) {
  if (arena->rings != NULL)
    munmap(arena->rings, (size_t)arena->ring_bytes);
  if (arena->memfd >= 0)
    closing_memory(arena->memfd);
  if (arena->wakeup >= 0)
    close(arena->wakeup);
  for (uint32_t i = 0; i < arena->devices; i++)
    if (arena->doorbells[i] >= 0)
      close(arena->doorbells[i]);
  arena_init(arena);
}

static void on_alarm(int number) {
  (void)number; /* to be delivered is all that it is for: write(2) returns EINTR */
}

/* The eventfd's open file is shared with the client, so that O_NONBLOCK is the client's to clear: a timer interrupts
 * a write that blocks, again and again, so that none is lost that comes just before write(2) begins to wait. A client
 * that does this to itself is not woken. */
static void wake_client(const struct arena *arena) {
  const struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
  const struct itimerval patience = {.it_interval.tv_usec = WAKE_PATIENCE_US, .it_value.tv_usec = WAKE_PATIENCE_US};
  const struct itimerval never = {.it_value.tv_usec = 0};
  uint64_t one = 1;
  if (sigaction(SIGALRM, &action, NULL) != 0 || setitimer(ITIMER_REAL, &patience, NULL) != 0)
    return;
  ssize_t written = write(arena->wakeup, &one, sizeof one);
  setitimer(ITIMER_REAL, &never, NULL);
  if (written < 0 && errno == EINTR)
    log_warning("a client has made its wakeup descriptor block, and is not woken");
}

static struct ring_queue *queue_at(const struct arena *arena, uint32_t device) {
  return ring_queue_at(arena->rings, arena->entries, device);
}

void arena_worker_lost(struct arena *arena, uint32_t device) {
  arena->generations[device]++;
  ring_set_worker_state(queue_at(arena, device), RING_WORKER_STARTING);
}

void arena_worker_ready(struct arena *arena, uint32_t device) {
  if (arena->published[device] != arena->generations[device])
    ring_replace_worker(queue_at(arena, device), arena->generations[device]);
  arena->published[device] = arena->generations[device];
  ring_set_worker_state(queue_at(arena, device), RING_WORKER_READY);
  wake_client(arena);
}

bool arena_worker_asleep(const struct arena *arena, uint32_t device) {
  return ring_rest_worker(queue_at(arena, device));
}

void arena_worker_failed(struct arena *arena, uint32_t device) {
  ring_set_worker_state(queue_at(arena, device), RING_WORKER_FAILED);
  wake_client(arena);
}
