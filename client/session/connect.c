#include "connect.h"
#include "../memory/tensor.h"
#include "../submit/plan.h"
#include "../submit/queue.h"
#include "../weight/borrowed.h"
#include "../weight/handle.h"
#include "embedded.h"
#include "exchange.h"
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/run/gemmd/gemmd.sock"
#define DEFAULT_ARENA_BYTES ((uint64_t)64 << 20)
#define DEFAULT_ENTRIES 64u
#define DEFAULT_SPIN_US 200u
#define DEFAULT_TIMEOUT_MS 10000u
#define DEFAULT_RECONNECT_MS 30000u
#define CROWDED_CORES 4

static const char embedded_prefix[] = "embedded:";

/* ---- options */

static int cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : CROWDED_CORES + 1;
}

/* Program names may be any bytes; messages carry text. */
static void client_name(const gemmd_options *options, char *out, size_t bytes) {
  const char *name = options->name ? options->name : program_invocation_short_name;
  size_t length = strnlen(name, bytes - 1);
  for (size_t i = 0; i < length; i++)
    out[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
  out[length] = '\0';
}

static void take_options(struct gemmd_session *session, const gemmd_options *options) {
  unsigned spin_us = options->spin_us ? options->spin_us : DEFAULT_SPIN_US;
  int available = cores();
  session->timeout_ns = (options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS) * CLOCK_NS_PER_MS;
  /* On one core nothing can arrive while this process spins. */
  spin_init(&session->spin, spin_us == UINT_MAX || available == 1 ? 0 : (uint64_t)spin_us * CLOCK_NS_PER_US);
  session->crowded = available <= CROWDED_CORES;
  client_name(options, session->name, sizeof session->name);
  session->resume_ns = options->reconnect_ms == UINT_MAX
                           ? 0
                           : (options->reconnect_ms ? options->reconnect_ms : DEFAULT_RECONNECT_MS) * CLOCK_NS_PER_MS;
}

/* ---- the socket */

static enum status address_open(struct gemmd_session *session, const char *address) {
  if (address == NULL)
    address = secure_getenv("GEMMD_SOCKET");
  if (address == NULL || address[0] == '\0')
    address = DEFAULT_SOCKET;
  size_t prefix = sizeof embedded_prefix - 1;
  if (strncmp(address, embedded_prefix, prefix) == 0)
    return embedded_start(address + prefix, &session->socket, &session->daemon, &session->error);
  _Static_assert(sizeof session->path == sizeof((struct sockaddr_un *)NULL)->sun_path, "a socket's path");
  size_t length = strlen(address);
  if (length == 0 || length >= sizeof session->path)
    return error_set(&session->error, STATUS_INVALID, "a socket's path must have 1..%zu bytes, got %zu",
                     sizeof session->path - 1, length);
  memcpy(session->path, address, length + 1);
  return link_connect(session);
}

/* ---- the arena */

static enum status bad_arena(struct gemmd_session *session, const char *reason) {
  return error_set(&session->error, STATUS_PROTOCOL, "the arena that the daemon sent cannot be used: %s", reason);
}

/* What is mapped must not shrink under this process, or a look at it would be a SIGBUS. */
static enum status arena_map(struct gemmd_session *session, int memfd, const struct message_arena_reply *reply) {
  struct stat stat;
  struct error error;
  int seals = fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK))
    return bad_arena(session, "it is not sealed against shrinking");
  if (fstat(memfd, &stat) != 0 || stat.st_size < 0 || (uint64_t)stat.st_size != reply->bytes)
    return bad_arena(session, "its size is not the one announced");
  if (ring_check(reply->devices, reply->entries, reply->bytes, &error) != STATUS_OK || reply->bytes > SIZE_MAX)
    return bad_arena(session, error.text);
  void *arena = mmap(NULL, (size_t)reply->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (arena == MAP_FAILED)
    return error_set(&session->error, errno == ENOMEM ? STATUS_NOMEM : STATUS_SYSTEM, "mapping the arena: %s",
                     strerror(errno));
  session->arena = arena;
  session->arena_bytes = reply->bytes;
  session->devices = reply->devices;
  session->entries = reply->entries;
  session->tensor_offset = ring_tensor_offset(reply->entries, reply->devices);

  struct ring_header header;
  memcpy(&header, arena, sizeof header);
  if (ring_header_check(&header, reply->bytes, &error) != STATUS_OK)
    return bad_arena(session, error.text);
  if (header.devices != reply->devices || header.entries != reply->entries)
    return bad_arena(session, "it has other rings than announced");
  return STATUS_OK;
}

static enum status session_arena(struct gemmd_session *session, const gemmd_options *options,
                                 const struct message_hello_reply *hello) {
  uint64_t bytes = options->arena_bytes, entries = options->entries;
  if (bytes == 0)
    bytes = DEFAULT_ARENA_BYTES < hello->arena_bytes_max ? DEFAULT_ARENA_BYTES : hello->arena_bytes_max;
  if (entries == 0)
    entries = DEFAULT_ENTRIES < hello->entries_max ? DEFAULT_ENTRIES : hello->entries_max;
  struct message_arena_request request = {.bytes = bytes, .entries = (uint32_t)entries};
  struct message_arena_reply reply;
  int fds[2] = {-1, -1}; /* memfd, wakeup */
  struct call call = {.command = COMMAND_arena_create,
                      .request = &request,
                      .reply = &reply,
                      .fd = -1,
                      .reply_fds = fds,
                      .reply_fd_count = 2};
  enum status status = exchange_call(session, &call);
  if (status != STATUS_OK)
    return status;
  session->memfd = fds[0];
  session->wakeup = fds[1];
  status = arena_map(session, fds[0], &reply);
  if (status != STATUS_OK)
    return status;
  heap_init(&session->heap, session->tensor_offset, session->arena_bytes);
  return pending_init(&session->pending, session->entries, &session->error);
}

/* ---- the session */

enum status session_begin(struct gemmd_session *session, const gemmd_options *options) {
  struct message_hello_reply hello;
  enum status status = link_hello(session, &hello);
  if (status == STATUS_OK)
    status = session_arena(session, options, &hello);
  return status == STATUS_OK ? link_watch(session) : status;
}

static enum status session_open(struct gemmd_session *session, const char *address, const gemmd_options *options) {
  take_options(session, options);
  enum status status = address_open(session, address);
  return status == STATUS_OK ? session_begin(session, options) : status;
}

static void close_fd(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

/* Gives back all but the session itself. Returns the wait status of an embedded daemon; -1: there was none. */
static int session_close(struct gemmd_session *session) {
  while (!LIST_EMPTY(&session->tensors))
    tensor_forget(LIST_FIRST(&session->tensors));
  while (!LIST_EMPTY(&session->borrowed))
    borrowed_forget(LIST_FIRST(&session->borrowed));
  while (!LIST_EMPTY(&session->plans))
    plan_forget(LIST_FIRST(&session->plans));
  while (!LIST_EMPTY(&session->weights))
    weight_forget(LIST_FIRST(&session->weights));
  for (uint32_t device = 0; device < session->devices; device++)
    queue_close(&session->queues[device]);
  if (session->arena != NULL)
    munmap(session->arena, (size_t)session->arena_bytes);
  session->arena = NULL;
  heap_release(&session->heap);
  pending_release(&session->pending);
  close_fd(&session->epoll);
  close_fd(&session->wakeup);
  close_fd(&session->memfd);
  close_fd(&session->socket);
  int ended = session->daemon > 0 ? embedded_reap(session->daemon) : -1;
  session->daemon = 0;
  return ended;
}

/* What remains of a failed connect: its sentence. */
static void session_wreck(struct gemmd_session *session) {
  struct error cause = session->error;
  bool closed = session->ended && cause.status == STATUS_DISCONNECTED;
  int ended = session_close(session);
  if (closed && ended != -1 && WIFEXITED(ended))
    (void)error_set(&cause, cause.status, "the embedded daemon ended with exit status %d; its log tells why",
                    WEXITSTATUS(ended));
  else if (closed && ended != -1)
    (void)error_set(&cause, cause.status, "the embedded daemon was killed by signal %d", WTERMSIG(ended));
  session->error = session->end = cause;
  session->ended = true;
}

int gemmd_connect(gemmd_session **out, const char *address, const gemmd_options *options) {
  static const gemmd_options defaults;
  gemmd_session *session = calloc(1, sizeof *session);
  *out = session;
  if (session == NULL)
    return GEMMD_NOMEM;
  session->socket = session->wakeup = session->epoll = session->memfd = -1;
  enum status status = session_open(session, address, options != NULL ? options : &defaults);
  if (status != STATUS_OK)
    session_wreck(session);
  return session_result(status);
}

void gemmd_disconnect(gemmd_session *session) {
  if (session == NULL)
    return;
  (void)session_close(session);
  free(session);
}

const char *gemmd_error(const gemmd_session *session) {
  return session != NULL ? session->error.text : "out of memory";
}
