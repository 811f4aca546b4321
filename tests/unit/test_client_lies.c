/* What a hostile or broken daemon may answer: the library must refuse it with a status and a sentence, and give
 * everything back. The other side of the socket is a thread that lies once, at one place. */
#include "../../client/gemmclient.h"
#include "../../proto/message.h"
#include "../../proto/ring.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = 4, DEVICES = 2, TENSORS = 65536, SHORT_MS = 30 };

struct peer {
  int listener, socket;
  int wakeup;
  void *arena;
  uint64_t bytes;
  uint32_t id; /* of the last request */
  char path[64];
  pthread_t thread;
  void (*hello)(struct peer *);
  void (*arena_create)(struct peer *);
  void (*rest)(struct peer *);
};

/* ---- the other side's tools; no assertions in its thread: what it gets wrong, the client's status shows */

static void peer_send(struct peer *peer, const void *bytes, size_t length, const int *fds, size_t fd_count) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(16 * sizeof(int))];
  } control;
  memset(&control, 0, sizeof control);
  struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  if (fd_count > 0) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
  }
  if (sendmsg(peer->socket, &header, MSG_NOSIGNAL) < 0)
    perror("peer: sendmsg");
}

static void peer_message(struct peer *peer, enum message_kind kind, uint32_t id, uint32_t code,
                         const struct message_type *type, const void *body, const int *fds, size_t fd_count) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head = {.kind = kind, .id = id, .code = code};
  struct error error;
  size_t length;
  if (message_encode(&head, type, body, bytes, sizeof bytes, &length, &error) == STATUS_OK)
    peer_send(peer, bytes, length, fds, fd_count);
  else
    fprintf(stderr, "peer: %s\n", error.text);
}

static void peer_reply(struct peer *peer, const struct message_type *type, const void *body, const int *fds,
                       size_t fd_count) {
  peer_message(peer, MESSAGE_REPLY, peer->id, STATUS_OK, type, body, fds, fd_count);
}

/* Waits for a request; its number, or 0 at the end. */
static uint32_t peer_request(struct peer *peer) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head = {.code = 0};
  struct message_body body;
  struct error error;
  ssize_t length = recv(peer->socket, bytes, sizeof bytes, 0);
  if (length <= 0 || message_decode_head(bytes, (size_t)length, &head, &body, &error) != STATUS_OK)
    return 0;
  peer->id = head.id;
  return head.code;
}

static void until_closed(struct peer *peer) {
  while (peer_request(peer) != 0)
    continue;
}

/* ---- honest answers */

static const struct message_hello_reply good_hello = {.version = PROTOCOL_VERSION_MAX,
                                                      .server = "peer",
                                                      .session = 1,
                                                      .backend = "cpu",
                                                      .devices = DEVICES,
                                                      .entries_max = LIMIT_RING_ENTRIES,
                                                      .arena_bytes_max = TENSORS,
                                                      .message_bytes_max = LIMIT_MESSAGE_BYTES};

static void hello_honest(struct peer *peer) {
  peer_reply(peer, &message_hello_reply_type, &good_hello, NULL, 0);
}

static int arena_memfd(struct peer *peer, unsigned seals) {
  int memfd = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  peer->bytes = ring_tensor_offset(ENTRIES, DEVICES) + TENSORS;
  if (memfd < 0 || ftruncate(memfd, (off_t)peer->bytes) != 0)
    perror("peer: memfd");
  peer->arena = mmap(NULL, peer->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  ring_format(peer->arena, DEVICES, ENTRIES, peer->bytes);
  fcntl(memfd, F_ADD_SEALS, seals);
  return memfd;
}

static void arena_send(struct peer *peer, int memfd, const struct message_arena_reply *reply, size_t fd_count) {
  peer->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int fds[] = {memfd, peer->wakeup, peer->wakeup};
  peer_reply(peer, &message_arena_reply_type, reply, fds, fd_count);
  close(memfd);
}

static struct message_arena_reply good_arena(const struct peer *peer) {
  return (struct message_arena_reply){.bytes = peer->bytes, .entries = ENTRIES, .devices = DEVICES};
}

static void arena_honest(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  struct message_arena_reply reply = good_arena(peer);
  arena_send(peer, memfd, &reply, 2);
}

/* ---- lies at hello */

static void hello_closes(struct peer *peer) {
  shutdown(peer->socket, SHUT_RDWR);
}

static void hello_is_no_msgpack(struct peer *peer) {
  peer_send(peer, "\xc1\xc1\xc1", 3, NULL, 0);
}

static void hello_is_half(struct peer *peer) {
  peer_send(peer, "\x94\x01\x01\x00", 4, NULL, 0);
}

static void hello_is_too_long(struct peer *peer) {
  static const char zeros[LIMIT_MESSAGE_BYTES + 1];
  int size = 4 * (int)LIMIT_MESSAGE_BYTES;
  setsockopt(peer->socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  peer_send(peer, zeros, sizeof zeros, NULL, 0);
}

static void hello_with_other_id(struct peer *peer) {
  peer_message(peer, MESSAGE_REPLY, peer->id + 1, STATUS_OK, &message_hello_reply_type, &good_hello, NULL, 0);
}

static void hello_is_a_request(struct peer *peer) {
  peer_message(peer, MESSAGE_REQUEST, peer->id, STATUS_OK, &message_hello_reply_type, &good_hello, NULL, 0);
}

static void hello_is_another_body(struct peer *peer) {
  struct message_ping ping = {.payload = 1};
  peer_reply(peer, &message_ping_type, &ping, NULL, 0);
}

static void hello_brings_descriptors(struct peer *peer) {
  int fds[] = {0, 0, 0};
  peer_reply(peer, &message_hello_reply_type, &good_hello, fds, 3);
}

static void hello_brings_too_many_descriptors(struct peer *peer) {
  int fds[16] = {0};
  peer_reply(peer, &message_hello_reply_type, &good_hello, fds, 16);
}

static void hello_from_the_future(struct peer *peer) {
  struct message_hello_reply reply = good_hello;
  reply.version = PROTOCOL_VERSION_MAX + 1;
  peer_reply(peer, &message_hello_reply_type, &reply, NULL, 0);
}

static void hello_refuses(struct peer *peer) {
  struct message_failure failure = {.text = "no places left"};
  peer_message(peer, MESSAGE_REPLY, peer->id, STATUS_BUSY, &message_failure_type, &failure, NULL, 0);
}

static void hello_refuses_with_unknown_status(struct peer *peer) {
  struct message_failure failure = {.text = "what is this"};
  peer_message(peer, MESSAGE_REPLY, peer->id, 250, &message_failure_type, &failure, NULL, 0);
}

static void hello_is_never_answered(struct peer *peer) {
  (void)peer;
}

/* ---- lies about the arena */

static void arena_without_descriptors(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  arena_send(peer, memfd, &reply, 0);
}

static void arena_without_wakeup(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  arena_send(peer, memfd, &reply, 1);
}

static void arena_with_three_descriptors(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  arena_send(peer, memfd, &reply, 3);
}

static void arena_is_unsealed(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_GROW);
  struct message_arena_reply reply = good_arena(peer);
  arena_send(peer, memfd, &reply, 2);
}

static void arena_is_smaller_than_said(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  reply.bytes += 4096;
  arena_send(peer, memfd, &reply, 2);
}

static void arena_is_larger_than_said(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  reply.bytes -= 4096;
  arena_send(peer, memfd, &reply, 2);
}

static void arena_is_no_memfd(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  close(memfd);
  arena_send(peer, open("/dev/zero", O_RDWR | O_CLOEXEC), &reply, 2);
}

static void arena_with_other_rings(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  reply.devices = 1;
  arena_send(peer, memfd, &reply, 2);
}

static void arena_with_odd_entries(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  reply.entries = 3;
  arena_send(peer, memfd, &reply, 2);
}

static void arena_without_devices(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  reply.devices = 0;
  arena_send(peer, memfd, &reply, 2);
}

static void arena_without_magic(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  ((struct ring_header *)peer->arena)->magic = 0;
  arena_send(peer, memfd, &reply, 2);
}

static void arena_with_tensors_elsewhere(struct peer *peer) {
  int memfd = arena_memfd(peer, F_SEAL_SHRINK);
  struct message_arena_reply reply = good_arena(peer);
  ((struct ring_header *)peer->arena)->tensor_offset = 64;
  arena_send(peer, memfd, &reply, 2);
}

/* ---- running a peer */

static void *peer_run(void *argument) {
  struct peer *peer = argument;
  peer->socket = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);
  if (peer_request(peer) == COMMAND_hello)
    peer->hello(peer);
  if (peer_request(peer) == COMMAND_arena_create) {
    peer->arena_create(peer);
    peer->rest(peer);
  }
  until_closed(peer);
  if (peer->arena != NULL)
    munmap(peer->arena, peer->bytes);
  if (peer->wakeup > 0)
    close(peer->wakeup);
  close(peer->socket);
  return NULL;
}

static int open_descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  assert_non_null(folder);
  while (readdir(folder) != NULL)
    count++;
  closedir(folder);
  return count;
}

static void peer_start(struct peer *peer, void (*hello)(struct peer *), void (*arena)(struct peer *),
                       void (*rest)(struct peer *)) {
  static int number;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  *peer = (struct peer){.socket = -1, .hello = hello, .arena_create = arena, .rest = rest};
  snprintf(peer->path, sizeof peer->path, "/tmp/gemmd-lies-%d-%d", (int)getpid(), number++);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", peer->path);
  peer->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(peer->listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(peer->listener, 1), 0);
  assert_int_equal(pthread_create(&peer->thread, NULL, peer_run, peer), 0);
}

static void peer_join(struct peer *peer) {
  assert_int_equal(pthread_join(peer->thread, NULL), 0);
  close(peer->listener);
  unlink(peer->path);
}

static void connect_is_refused(void (*hello)(struct peer *), void (*arena)(struct peer *), int expected,
                               const char *says) {
  struct peer peer;
  gemmd_session *session = NULL;
  gemmd_options options = {.timeout_ms = expected == GEMMD_TIMEOUT ? SHORT_MS : 0};
  int before = open_descriptors();
  peer_start(&peer, hello, arena, until_closed);
  assert_int_equal(gemmd_connect(&session, peer.path, &options), expected);
  assert_non_null(session);
  assert_non_null(strstr(gemmd_error(session), says));
  /* All has been given back before gemmd_disconnect, but for the sentence. */
  peer_join(&peer);
  assert_int_equal(open_descriptors(), before);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_DISCONNECTED);
  assert_non_null(strstr(gemmd_error(session), says));
  gemmd_disconnect(session);
}

static void lies_at_hello_are_refused(void **state) {
  (void)state;
  connect_is_refused(hello_closes, arena_honest, GEMMD_DISCONNECTED, "closed the connection");
  connect_is_refused(hello_is_no_msgpack, arena_honest, GEMMD_PROTOCOL, "");
  connect_is_refused(hello_is_half, arena_honest, GEMMD_PROTOCOL, "");
  connect_is_refused(hello_is_too_long, arena_honest, GEMMD_PROTOCOL, "more bytes or descriptors");
  connect_is_refused(hello_with_other_id, arena_honest, GEMMD_PROTOCOL, "answers nothing");
  connect_is_refused(hello_is_a_request, arena_honest, GEMMD_PROTOCOL, "answers nothing");
  connect_is_refused(hello_is_another_body, arena_honest, GEMMD_PROTOCOL, "hello_reply");
  connect_is_refused(hello_brings_descriptors, arena_honest, GEMMD_PROTOCOL, "must bring 0 descriptors, got 3");
  connect_is_refused(hello_brings_too_many_descriptors, arena_honest, GEMMD_PROTOCOL, "more bytes or descriptors");
  connect_is_refused(hello_from_the_future, arena_honest, GEMMD_VERSION, "the daemon speaks version 2");
  connect_is_refused(hello_refuses, arena_honest, GEMMD_BUSY, "no places left");
  connect_is_refused(hello_refuses_with_unknown_status, arena_honest, GEMMD_INTERNAL, "");
  connect_is_refused(hello_is_never_answered, arena_honest, GEMMD_TIMEOUT, "no answer to hello");
}

static void lies_about_the_arena_are_refused(void **state) {
  (void)state;
  connect_is_refused(hello_honest, arena_without_descriptors, GEMMD_PROTOCOL, "must bring 2 descriptors, got 0");
  connect_is_refused(hello_honest, arena_without_wakeup, GEMMD_PROTOCOL, "must bring 2 descriptors, got 1");
  connect_is_refused(hello_honest, arena_with_three_descriptors, GEMMD_PROTOCOL, "must bring 2 descriptors, got 3");
  connect_is_refused(hello_honest, arena_is_unsealed, GEMMD_PROTOCOL, "not sealed");
  connect_is_refused(hello_honest, arena_is_smaller_than_said, GEMMD_PROTOCOL, "size");
  connect_is_refused(hello_honest, arena_is_larger_than_said, GEMMD_PROTOCOL, "size");
  connect_is_refused(hello_honest, arena_is_no_memfd, GEMMD_PROTOCOL, "not sealed");
  connect_is_refused(hello_honest, arena_with_other_rings, GEMMD_PROTOCOL, "other rings");
  connect_is_refused(hello_honest, arena_with_odd_entries, GEMMD_PROTOCOL, "power of two");
  connect_is_refused(hello_honest, arena_without_devices, GEMMD_PROTOCOL, "device");
  connect_is_refused(hello_honest, arena_without_magic, GEMMD_PROTOCOL, "magic");
  connect_is_refused(hello_honest, arena_with_tensors_elsewhere, GEMMD_PROTOCOL, "tensors");
}

/* ---- lies later on */

static struct message_weight_info good_weight(void) {
  return (struct message_weight_info){.name = "w",
                                      .n = 256,
                                      .k = 64,
                                      .format = GEMM_FORMAT_F16,
                                      .placement = PLACEMENT_SPLIT,
                                      .parts_count = 2,
                                      .parts = {{.device = 0, .handle = 1 << 16, .n_count = 128},
                                                {.device = 1, .handle = 2 << 16, .n_begin = 128, .n_count = 128}}};
}

/* The reply to weight_open, and honest answers from there on. */
static struct message_weight_info lied_weight;

static void serves_weight(struct peer *peer) {
  for (uint32_t command = peer_request(peer); command != 0; command = peer_request(peer)) {
    struct message_queue_open queue = {.device = 0};
    struct message_empty empty = {.reserved = 0};
    if (command == COMMAND_weight_open)
      peer_reply(peer, &message_weight_info_type, &lied_weight, NULL, 0);
    else if (command == COMMAND_queue_open)
      peer_reply(peer, &message_queue_open_type, &queue, &peer->wakeup, 1);
    else
      peer_reply(peer, &message_empty_type, &empty, NULL, 0);
  }
}

static gemmd_session *session_with(struct peer *peer, void (*rest)(struct peer *), unsigned timeout_ms) {
  gemmd_session *session = NULL;
  gemmd_options options = {.timeout_ms = timeout_ms, .spin_us = UINT_MAX};
  peer_start(peer, hello_honest, arena_honest, rest);
  assert_int_equal(gemmd_connect(&session, peer->path, &options), GEMMD_OK);
  return session;
}

static void weight_is_refused(void) {
  struct peer peer;
  gemmd_weight *weight;
  int before = open_descriptors();
  gemmd_session *session = session_with(&peer, serves_weight, 0);
  assert_int_equal(gemmd_weight_open(session, "w", &weight), GEMMD_PROTOCOL);
  assert_null(weight);
  assert_non_null(strstr(gemmd_error(session), "an opened weight"));
  assert_int_equal(gemmd_weight_open(session, "w", &weight), GEMMD_DISCONNECTED);
  gemmd_disconnect(session);
  peer_join(&peer);
  assert_int_equal(open_descriptors(), before);
}

static void parts_that_do_not_fit_are_refused(void **state) {
  (void)state;
  lied_weight = good_weight();
  lied_weight.parts[1].device = DEVICES;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.parts[1].n_count = 129;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.parts[1].n_count = 127;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.parts[1].n_count = INT64_MAX;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.parts[0].n_count = 120;
  lied_weight.parts[1].n_begin = 120;
  lied_weight.parts[1].n_count = 136;
  weight_is_refused(); /* y of the second part would not be aligned */
  lied_weight = good_weight();
  lied_weight.parts_count = 0;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.placement = PLACEMENT_SINGLE;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.placement = PLACEMENT_REPLICAS;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.placement = 3;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.format = 9;
  weight_is_refused();
  lied_weight = good_weight();
  lied_weight.k = 0;
  weight_is_refused();
}

/* A completion that nobody asked for ends the session, and with it the product in flight. */
static void unknown_tag_ends_the_session(uint64_t (*lie)(uint64_t tag)) {
  struct peer peer;
  gemmd_weight *weight;
  gemmd_result result;
  uint64_t ticket;
  lied_weight = good_weight();
  gemmd_session *session = session_with(&peer, serves_weight, 0);
  assert_int_equal(gemmd_weight_open(session, "w", &weight), GEMMD_OK);
  gemmd_product product = {
      .m = 1, .x = gemmd_alloc(session, 128), .x_type = GEMMD_F16, .y = gemmd_alloc(session, 512), .y_type = GEMMD_F16};
  assert_int_equal(gemmd_submit(weight, &product, &ticket), GEMMD_OK);
  assert_int_equal(gemmd_wait(session, ticket, 0, NULL), GEMMD_TIMEOUT);

  struct ring_worker worker;
  struct ring_submission submission;
  struct error error;
  bool taken, wake;
  ring_worker_init(&worker, peer.arena, ENTRIES, 0, 1);
  assert_int_equal(ring_worker_take(&worker, &submission, &taken, &error), STATUS_OK);
  assert_true(taken);
  struct ring_completion completion = {.tag = lie(submission.tag)};
  ring_worker_complete(&worker, &completion, &wake);

  assert_int_equal(gemmd_wait_any(session, 0, &result), GEMMD_OK);
  assert_int_equal(result.ticket, ticket);
  assert_int_equal(result.status, GEMMD_PROTOCOL);
  assert_non_null(strstr(gemmd_error(session), "nobody made"));
  assert_int_equal(gemmd_submit(weight, &product, &ticket), GEMMD_DISCONNECTED);
  assert_int_equal(gemmd_wait_any(session, -1, &result), GEMMD_DISCONNECTED);
  gemmd_disconnect(session);
  peer_join(&peer);
}

static uint64_t another_slot(uint64_t tag) {
  return tag ^ 1 << 4;
}

static uint64_t another_part(uint64_t tag) {
  return tag ^ 1; /* that part is the other device's */
}

static uint64_t no_tag(uint64_t tag) {
  return tag - tag;
}

static uint64_t largest_tag(uint64_t tag) {
  return tag | UINT64_MAX;
}

static void unknown_tags_end_the_session(void **state) {
  (void)state;
  unknown_tag_ends_the_session(another_slot);
  unknown_tag_ends_the_session(another_part);
  unknown_tag_ends_the_session(no_tag);
  unknown_tag_ends_the_session(largest_tag);
}

static void pings_with_another_payload(struct peer *peer) {
  struct message_ping ping = {.payload = 0};
  peer_request(peer);
  peer_reply(peer, &message_ping_type, &ping, NULL, 0);
}

static void a_ping_must_come_back(void **state) {
  (void)state;
  struct peer peer;
  gemmd_session *session = session_with(&peer, pings_with_another_payload, 0);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_PROTOCOL);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_DISCONNECTED);
  gemmd_disconnect(session);
  peer_join(&peer);
}

/* Answers the first ping only when the second has come, with a descriptor that nobody wants. */
static void pings_late(struct peer *peer) {
  static const struct message_empty empty = {.reserved = 0};
  struct message_ping ping = {.payload = 5};
  peer_request(peer);
  uint32_t first = peer->id;
  peer_request(peer);
  peer_message(peer, MESSAGE_EVENT, 0, 999, &message_empty_type, &empty, NULL, 0);
  peer_message(peer, MESSAGE_REPLY, first, STATUS_OK, &message_ping_type, &ping, &peer->wakeup, 1);
  peer_message(peer, MESSAGE_REPLY, peer->id, STATUS_OK, &message_empty_type, &empty, NULL, 0);
}

static bool no_weight(void *user, const gemmd_weight_info *info) {
  (void)user, (void)info;
  return false;
}

static void late_answers_and_unknown_events_are_dropped(void **state) {
  (void)state;
  struct peer peer;
  int before = open_descriptors();
  gemmd_session *session = session_with(&peer, pings_late, SHORT_MS);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_TIMEOUT);
  /* The last message is an empty body, which no list has: so far the call came, past the two before. */
  assert_int_equal(gemmd_weight_list(session, NULL, no_weight, NULL), GEMMD_PROTOCOL);
  assert_non_null(strstr(gemmd_error(session), "weight_list_reply"));
  gemmd_disconnect(session);
  peer_join(&peer);
  assert_int_equal(open_descriptors(), before);
}

static void lists_forever(struct peer *peer) {
  static struct message_weight_list_reply page;
  page.weights_count = 1;
  page.weights[0] = good_weight();
  page.more = true;
  while (peer_request(peer) == COMMAND_weight_list)
    peer_reply(peer, &message_weight_list_reply_type, &page, NULL, 0);
}

static bool count_weight(void *user, const gemmd_weight_info *info) {
  assert_string_equal(info->name, "w");
  ++*(int *)user;
  return true;
}

static void a_list_must_move_on(void **state) {
  (void)state;
  struct peer peer;
  int count = 0;
  gemmd_session *session = session_with(&peer, lists_forever, 0);
  assert_int_equal(gemmd_weight_list(session, NULL, count_weight, &count), GEMMD_PROTOCOL);
  assert_int_equal(count, 1);
  gemmd_disconnect(session);
  peer_join(&peer);
}

static void sends_garbage(struct peer *peer) {
  peer_send(peer, "?", 1, NULL, 0);
}

/* What comes unasked makes the event loop's descriptor readable, and so does the end. */
static void garbage_reaches_the_event_loop(void **state) {
  (void)state;
  struct peer peer;
  gemmd_session *session = session_with(&peer, sends_garbage, 0);
  struct pollfd readable = {.fd = gemmd_fd(session), .events = POLLIN};
  assert_int_equal(poll(&readable, 1, -1), 1);
  assert_int_equal(gemmd_dispatch(session, 0), GEMMD_PROTOCOL);
  assert_int_equal(poll(&readable, 1, -1), 1);
  assert_int_equal(gemmd_dispatch(session, -1), GEMMD_DISCONNECTED);
  gemmd_disconnect(session);
  peer_join(&peer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lies_at_hello_are_refused),
      cmocka_unit_test(lies_about_the_arena_are_refused),
      cmocka_unit_test(parts_that_do_not_fit_are_refused),
      cmocka_unit_test(unknown_tags_end_the_session),
      cmocka_unit_test(a_ping_must_come_back),
      cmocka_unit_test(late_answers_and_unknown_events_are_dropped),
      cmocka_unit_test(a_list_must_move_on),
      cmocka_unit_test(garbage_reaches_the_event_loop),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
