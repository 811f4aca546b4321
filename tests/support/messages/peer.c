#include "peer.h"

#include "daemon/loader/loader.h"
#include "daemon/log.h"
#include "daemon/supervisor/supervisor.h"
#include "daemon/worker/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONTROL_FD = 3, PATIENCE_MS = 60000 };

/* ---- processes */

void peer_main(int count, char **words) {
  static struct config config;
  struct error error;
  if (count < 2 || (strcmp(words[1], "--worker") != 0 && strcmp(words[1], "--load") != 0))
    return;
  bool worker = strcmp(words[1], "--worker") == 0, standby = worker && count > 3 && strcmp(words[3], "--standby") == 0;
  config_defaults(&config);
  for (int i = worker ? 3 + standby : 2; i + 1 < count; i += 2)
    if (config_set(&config, words[i] + 2, words[i + 1], &error) != STATUS_OK)
      exit(2);
  log_open(config.log_level, words[1] + 2);
  exit(worker ? worker_run(&config, atoi(words[2]), CONTROL_FD, standby, words) : loader_run(&config, CONTROL_FD));
}

void peer_config(struct config *config) {
  struct error error;
  config_defaults(config);
  assert_int_equal(config_set(config, "backend", "cpu", &error), STATUS_OK);
  assert_int_equal(config_set(config, "log_level", getenv("GEMMD_TEST_LOG") ? "debug" : "error", &error), STATUS_OK);
  config->cpu_threads = 2;
  config->slab_bytes = 2 << 20;
}

static const char this_program[] = "/proc/self/exe", *children_of = this_program;

void peer_children(const char *program) {
  children_of = program != NULL ? program : this_program;
}

static void run(const struct config *config, int embedded) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that is killed leaves no daemon behind */
  log_open(config->log_level, "supervisor");
  /* exit and not _exit: a leak checker has its say then */
  exit(supervisor_run(config, this_program, children_of, NULL, embedded));
}

pid_t peer_start_embedded(const struct config *config, int *socket) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    close(pair[0]);
    run(config, pair[1]);
  }
  close(pair[1]);
  *socket = pair[0];
  return pid;
}

int peer_connect(const struct config *config) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%.100s", config->socket);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

static int notify_socket = -1; /* this process' only, or who does not read from it would hold its peer up */

pid_t peer_spawn(const struct config *config) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0 && notify_socket >= 0)
    close(notify_socket);
  if (pid == 0)
    run(config, -1);
  return pid;
}

/* The service manager's end: a datagram socket with an abstract name that the kernel chooses. */
static int open_notify(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  socklen_t bytes = sizeof(sa_family_t);
  char name[sizeof address.sun_path + 1] = "@";
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
  bytes = sizeof address;
  assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
  size_t length = bytes - offsetof(struct sockaddr_un, sun_path);
  memcpy(name + 1, address.sun_path + 1, length - 1);
  assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
  return fd;
}

pid_t peer_start(const struct config *config) {
  char state[256];
  int notify = open_notify();
  notify_socket = notify;
  pid_t pid = peer_spawn(config);
  notify_socket = -1;
  unsetenv("NOTIFY_SOCKET");
  struct pollfd poller = {.fd = notify, .events = POLLIN};
  assert_int_equal(poll(&poller, 1, PATIENCE_MS), 1);
  ssize_t length = recv(notify, state, sizeof state - 1, 0);
  assert_true(length > 0);
  state[length] = '\0';
  assert_ptr_equal(strstr(state, "READY=1\n"), state);
  close(notify);
  return pid;
}

int peer_wait(pid_t pid) {
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- messages */

void peer_send(int socket, uint32_t id, uint32_t command, const struct message_type *type, const void *body,
               const int *fds, size_t fd_count) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = id, .code = command};
  struct error error;
  size_t length;
  assert_int_equal(message_encode(&head, type, body, bytes, sizeof bytes, &length, &error), STATUS_OK);
  assert_int_equal(transport_send(socket, bytes, length, fds, fd_count, &error), STATUS_OK);
}

static enum status next_packet(int socket, struct packet *packet, struct error *error) {
  struct pollfd poller = {.fd = socket, .events = POLLIN};
  assert_int_equal(poll(&poller, 1, PATIENCE_MS), 1);
  return transport_receive(socket, packet, error);
}

/* All that a client is told without asking. */
static bool for_clients(uint32_t event) {
  return event == EVENT_weight_progress || event == EVENT_session_broken || event == EVENT_weight_withdrawn;
}

void peer_receive(int socket, uint32_t id, const struct message_type *type, void *out, struct peer_reply *reply) {
  struct message_head head = {.kind = MESSAGE_EVENT};
  struct message_body body;
  while (head.kind == MESSAGE_EVENT) {
    assert_int_equal(next_packet(socket, &reply->packet, &reply->error), STATUS_OK);
    assert_int_equal(message_decode_head(reply->packet.bytes, reply->packet.length, &head, &body, &reply->error),
                     STATUS_OK);
    assert_true(head.kind != MESSAGE_EVENT || for_clients(head.code));
  }
  assert_int_equal(head.kind, MESSAGE_REPLY);
  assert_int_equal(head.id, id);
  reply->status = (enum status)head.code;
  reply->retry_ms = 0;
  if (reply->status != STATUS_OK) {
    struct message_failure failure;
    message_decode_failure(head.code, body, &reply->error);
    assert_int_equal(message_decode_body(body, &message_failure_type, &failure, &(struct error){0}), STATUS_OK);
    reply->retry_ms = failure.retry_ms;
  } else if (out != NULL) {
    assert_int_equal(message_decode_body(body, type, out, &reply->error), STATUS_OK);
  }
}

enum status peer_ask(int socket, enum command command, const void *body, const int *fds, size_t fd_count, void *out,
                     struct error *error) {
  static struct peer_reply reply;
  static uint32_t id = 100;
  const struct command_info *info = command_find(command);
  peer_send(socket, ++id, command, info->request, body, fds, fd_count);
  peer_receive(socket, id, info->reply, out, &reply);
  packet_close(&reply.packet);
  if (error != NULL)
    *error = reply.error;
  return reply.status;
}

void peer_expect_alive(int socket) {
  struct message_ping ping = {.payload = 77}, pong;
  assert_int_equal(peer_ask(socket, COMMAND_ping, &ping, NULL, 0, &pong, NULL), STATUS_OK);
  assert_int_equal(pong.payload, 77);
}

void peer_expect_end(int socket) {
  static struct packet packet;
  struct error error;
  while (next_packet(socket, &packet, &error) == STATUS_OK)
    packet_close(&packet);
  assert_int_equal(error.status, STATUS_DISCONNECTED);
}

void peer_hello(int socket) {
  struct message_hello_request request = {.version_min = 1, .version_max = 1, .client = "test"};
  struct message_hello_reply reply;
  assert_int_equal(peer_ask(socket, COMMAND_hello, &request, NULL, 0, &reply, NULL), STATUS_OK);
  assert_int_equal(reply.version, 1);
}

void peer_arena(int socket, uint32_t entries) {
  struct message_arena_request request = {.bytes = 1 << 16, .entries = entries};
  struct message_arena_reply reply;
  assert_int_equal(peer_ask(socket, COMMAND_arena_create, &request, NULL, 0, &reply, NULL), STATUS_OK);
  assert_int_equal(reply.entries, entries);
}

/* ---- weights */

int peer_file(int64_t n, int64_t k, uint32_t seed) {
  char header[256];
  uint64_t bytes = (uint64_t)(n * k) * sizeof(float);
  int length =
      snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"F32\",\"shape\":[%lld,%lld],\"data_offsets\":[0,%llu]}}",
               (long long)n, (long long)k, (unsigned long long)bytes);
  uint64_t header_bytes = (uint64_t)length;
  float *values = malloc(bytes);
  assert_non_null(values);
  for (int64_t i = 0; i < n * k; i++)
    values[i] = (float)((uint32_t)(i + 1) * (seed * 2654435761u + 40503u) >> 20) - 2048.0f;
  int fd = memfd_create("test-weights", MFD_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, &header_bytes, sizeof header_bytes), sizeof header_bytes);
  assert_int_equal(write(fd, header, header_bytes), header_bytes);
  assert_int_equal(write(fd, values, bytes), bytes);
  free(values);
  return fd;
}

struct message_weight_load peer_load(const char *name) {
  struct message_weight_load load = {.tensor = "w", .format = 1};
  snprintf(load.name, sizeof load.name, "%s", name);
  return load;
}
