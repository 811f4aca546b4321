/* A supervisor in a process of its own, and bare control messages to it: what a client library would never send can be
 * sent from here. The test program is its own worker and loader: call peer_main first thing in main(). */
#pragma once

#include "daemon/config.h"
#include "daemon/transport.h"
#include "proto/wire/message.h"

#include <sys/types.h>

/* Does not return where this process was started as a worker or a loader. */
void peer_main(int count, char **words);

/* Supervisors that are started from now on start their children from this program; NULL: from this one. */
void peer_children(const char *program);
/* Options for tests: cpu, two threads, quiet. */
void peer_config(struct config *config);
/* Starts a supervisor that serves one connection; *socket is the other end. */
pid_t peer_start_embedded(const struct config *config, int *socket);
/* Starts one that listens on config->socket. */
pid_t peer_spawn(const struct config *config);
/* The same, and returns when it has said READY=1, as it says to systemd. */
pid_t peer_start(const struct config *config);
/* The exit status of a supervisor; 128 + the signal that ended it. Waits. */
int peer_wait(pid_t pid);
int peer_connect(const struct config *config);

struct peer_reply {
  enum status status;
  struct error error;   /* where it is not OK */
  uint32_t retry_ms;    /* that came with it */
  struct packet packet; /* with its descriptors */
};

void peer_send(int socket, uint32_t id, uint32_t command, const struct message_type *type, const void *body,
               const int *fds, size_t fd_count);
/* Waits for the next reply, which must be to `id`; events are skipped. Decodes the body into `out`, which may be
 * NULL. Fails the test after a minute. */
void peer_receive(int socket, uint32_t id, const struct message_type *type, void *out, struct peer_reply *reply);
/* Sends and waits. Descriptors that came are closed. */
enum status peer_ask(int socket, enum command command, const void *body, const int *fds, size_t fd_count, void *out,
                     struct error *error);
/* It answers a ping. */
void peer_expect_alive(int socket);
/* Waits until the other side closes; what comes before is dropped. */
void peer_expect_end(int socket);
/* hello, and an arena with `entries` where that is not 0. */
void peer_hello(int socket);
void peer_arena(int socket, uint32_t entries);

/* A safetensors file of one f32 tensor "w" [n, k] whose values depend on `seed`: a descriptor open for reading. */
int peer_file(int64_t n, int64_t k, uint32_t seed);
/* A request to load it as INT8 under `name`. */
struct message_weight_load peer_load(const char *name);
