/* A daemon that answers what it likes. The first byte says what the library is asked for, and whether it gets a session
 * before; the rest are records, each behind three bytes: its length and what it is. Most are records of the control
 * socket, which the library reads as answers to its calls, with or without descriptors; others are written into the
 * arena before it is handed over. */
#include "client/session/connect.h"
#include "client/session/exchange.h"
#include "proto/wire/rights.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ENTRIES = 4, DEVICES = 1, TENSOR_BYTES = 16384, FDS = 3, RECORD_HEAD = 3, RECORD_MOST = 4096 };

/* ---- the daemon */

/* Of a record: what comes along. */
enum kind { KIND_PLAIN, KIND_ARENA, KIND_EVENT, KIND_LOOSE, KIND_SCRIBBLE, KINDS };

struct liar {
  int socket, arena, event, loose; /* owned; a sealed arena, an eventfd, and memory without seals */
  uint8_t *memory;                 /* of the arena */
  size_t bytes;
};

static void liar_open(struct liar *liar, int socket) {
  liar->socket = socket;
  liar->bytes = ring_tensor_offset(ENTRIES, DEVICES) + TENSOR_BYTES;
  liar->arena = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  liar->loose = memfd_create("fuzz", MFD_CLOEXEC);
  liar->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (liar->arena < 0 || liar->loose < 0 || liar->event < 0 || ftruncate(liar->arena, (off_t)liar->bytes) != 0 ||
      fcntl(liar->arena, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    abort();
  liar->memory = mmap(NULL, liar->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, liar->arena, 0);
  if (liar->memory == MAP_FAILED)
    abort();
  ring_format(liar->memory, DEVICES, ENTRIES, liar->bytes);
}

static void liar_close(struct liar *liar) {
  munmap(liar->memory, liar->bytes);
  close(liar->arena);
  close(liar->loose);
  close(liar->event);
  close(liar->socket);
}

static void send_record(const struct liar *liar, enum kind kind, const uint8_t *bytes, size_t length) {
  const int fds[KINDS][FDS] = {[KIND_ARENA] = {liar->arena, liar->event},
                               [KIND_EVENT] = {liar->event},
                               [KIND_LOOSE] = {liar->loose, liar->arena, liar->event}};
  static const size_t fd_counts[KINDS] = {[KIND_ARENA] = 2, [KIND_EVENT] = 1, [KIND_LOOSE] = FDS};
  struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  union rights rights;
  rights_put(&rights, &header, fds[kind], fd_counts[kind]);
  (void)!sendmsg(liar->socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Two bytes say where. */
static void scribble(const struct liar *liar, const uint8_t *bytes, size_t length) {
  if (length < 2)
    return;
  size_t at = (size_t)bytes[0] << 8 | bytes[1];
  for (size_t i = 2; i < length && at < liar->bytes; i++)
    liar->memory[at++] = bytes[i];
}

static void liar_play(const struct liar *liar, const uint8_t *data, size_t size) {
  for (size_t at = 0; at + RECORD_HEAD < size;) {
    enum kind kind = (enum kind)(data[at] % KINDS);
    size_t length = ((size_t)data[at + 1] << 8 | data[at + 2]) % RECORD_MOST + 1;
    if (length > size - at - RECORD_HEAD)
      length = size - at - RECORD_HEAD;
    if (kind == KIND_SCRIBBLE)
      scribble(liar, data + at + RECORD_HEAD, length);
    else
      send_record(liar, kind, data + at + RECORD_HEAD, length);
    at += RECORD_HEAD + length;
  }
  shutdown(liar->socket, SHUT_WR); /* a missing answer is the end, and not a wait */
}

/* ---- what the library is asked for */

static bool each(void *user, const gemmd_weight_info *info) {
  return info->n > 0;
}

static bool each_shape(void *user, const gemmd_tune_shape *shape) {
  return shape->calls > 0;
}

static void ask_ping(gemmd_session *session) {
  (void)gemmd_ping(session, NULL);
  exchange_look(session);
}

static void ask_status(gemmd_session *session) {
  static gemmd_daemon_info info;
  (void)gemmd_daemon_status(session, &info);
}

static void ask_stat(gemmd_session *session) {
  gemmd_weight_info info;
  (void)gemmd_weight_stat(session, "w", &info);
}

static void ask_list(gemmd_session *session) {
  (void)gemmd_weight_list(session, NULL, each, NULL);
}

static void ask_load(gemmd_session *session) {
  const gemmd_load load = {.name = "w", .tensor = "w", .format = GEMMD_FORMAT_INT8, .device = -1};
  int file = memfd_create("fuzz", MFD_CLOEXEC);
  (void)gemmd_weight_load(session, file, &load, NULL);
  close(file);
}

static void ask_unload(gemmd_session *session) {
  (void)gemmd_weight_unload(session, "w", NULL);
}

static void ask_metrics(gemmd_session *session) {
  char *text = NULL;
  if (gemmd_metrics(session, &text) == GEMMD_OK)
    free(text);
}

static void ask_drain(gemmd_session *session) {
  (void)gemmd_drain(session);
}

static void ask_tune_list(gemmd_session *session) {
  (void)gemmd_tune_list(session, 0, each_shape, NULL);
}

static void ask_tune(gemmd_session *session) {
  static gemmd_tune_report report;
  const gemmd_tune_request request = {.weight = "w", .m = 1, .x_type = GEMMD_F16, .y_type = GEMMD_F16};
  (void)gemmd_tune(session, &request, &report);
}

static void ask_tune_change(gemmd_session *session) {
  uint32_t count;
  (void)gemmd_tune_forget(session, 0, "*", &count);
  (void)gemmd_tune_pin(session, "*", NULL, &count);
}

/* A product of a weight with one row: what N and K are is the daemon's word. */
static void ask_product(gemmd_session *session) {
  gemmd_weight *weight;
  if (gemmd_weight_open(session, "w", &weight) != GEMMD_OK)
    return;
  gemmd_product product = {.m = 1,
                           .x = gemmd_alloc(session, TENSOR_BYTES / 4),
                           .x_type = GEMMD_F32,
                           .y = gemmd_alloc(session, TENSOR_BYTES / 4),
                           .y_type = GEMMD_F32};
  if (product.x != NULL && product.y != NULL)
    for (int i = 0; i < 2; i++)
      (void)gemmd_matmul(weight, &product);
  gemmd_weight_close(weight);
}

static void ask_plan(gemmd_session *session) {
  gemmd_weight *weight;
  gemmd_plan *plan;
  if (gemmd_weight_open(session, "w", &weight) != GEMMD_OK)
    return;
  const gemmd_step steps[] = {{.weight = weight, .y_type = GEMMD_F16}, {.weight = weight, .y_type = GEMMD_F32}};
  if (gemmd_plan_create(session, steps, 2, &plan) == GEMMD_OK)
    gemmd_plan_free(plan);
}

static void ask_memory(gemmd_session *session) {
  static uint8_t place[4096];
  gemmd_memory *memory;
  int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (ftruncate(fd, sizeof place) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    abort();
  if (gemmd_memory_open(session, 0, fd, place, sizeof place, &memory) == GEMMD_OK)
    (void)gemmd_memory_close(memory);
  close(fd);
}

static void (*const asks[])(gemmd_session *session) = {ask_ping,        ask_status,  ask_stat,  ask_list,      ask_load,
                                                       ask_unload,      ask_metrics, ask_drain, ask_tune_list, ask_tune,
                                                       ask_tune_change, ask_product, ask_plan,  ask_memory};
enum { ASKS = sizeof asks / sizeof *asks, BARE = 0x80 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const gemmd_options options = {.arena_bytes = TENSOR_BYTES, .entries = ENTRIES};
  struct liar liar;
  int pair[2];
  if (size == 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return 0;
  gemmd_session *session = calloc(1, sizeof *session);
  if (session == NULL)
    return 0;
  session->socket = pair[0];
  session->wakeup = session->epoll = session->memfd = -1;
  liar_open(&liar, pair[1]);
  liar_play(&liar, data + 1, size - 1);
  if ((data[0] & BARE) != 0)
    session->devices = DEVICES;
  if ((data[0] & BARE) != 0 || session_begin(session, &options) == STATUS_OK)
    asks[(data[0] & ~BARE) % ASKS](session);
  gemmd_disconnect(session);
  liar_close(&liar);
  return 0;
}
