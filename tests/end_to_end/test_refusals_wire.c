/* Bad input that no library sends: records on the control socket, and rings. Each gets a status and a sentence with the
 * field and the value, and nothing is lost. */
#include "tests/support/daemon/witness.h"
#include "tests/support/messages/raw.h"
#include "tests/support/reference/checkpoint.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- the control socket */

static void hello(int socket) {
  struct raw_reply reply;
  struct message_hello_request request = {.version_min = 1, .version_max = 3, .client = "raw"};
  struct message_hello_reply answer;
  assert_true(raw_ask(socket, COMMAND_hello, &request, NULL, 0, &answer, &reply));
  assert_int_equal(reply.status, STATUS_OK);
  assert_int_equal(answer.version, 1);
  assert_int_equal(answer.message_bytes_max, LIMIT_MESSAGE_BYTES);
}

static void expect_status(int socket, enum command command, const void *body, enum status status) {
  struct raw_reply reply;
  assert_true(raw_ask(socket, command, body, NULL, 0, NULL, &reply));
  assert_int_equal(reply.status, status);
  assert_true(strlen(reply.error.text) > 0);
}

/* Whatever it is: it is the client's. */
static void an_id_comes_back(void **state) {
  static const uint32_t ids[] = {0, 7, 7, UINT32_MAX};
  int socket = raw_connect(witness.daemon.socket);
  hello(socket);
  for (size_t i = 0; i < COUNT(ids); i++) {
    struct message_ping ping = {.payload = 40 + i}, pong;
    struct message_head head = {.kind = MESSAGE_REQUEST, .id = ids[i], .code = COMMAND_ping};
    struct raw_reply reply;
    struct error error;
    uint8_t bytes[64];
    size_t length;
    assert_int_equal(message_encode(&head, &message_ping_type, &ping, bytes, sizeof bytes, &length, &error), STATUS_OK);
    raw_send(socket, bytes, length, NULL, 0);
    assert_true(raw_receive(socket, ids[i], &message_ping_type, &pong, &reply));
    assert_int_equal(reply.status, STATUS_OK);
    assert_int_equal(pong.payload, ping.payload);
  }
  close(socket);
}

/* One memfd may be memory of several sessions, and of one several times; each has a handle of its own. On a GPU memory
 * of one's own is the device's. */
static void one_memory_in_two_sessions(void **state) {
  enum { BYTES = 4096 };
  if (daemon_on_cuda())
    skip();
  struct raw_session sessions[2];
  struct message_tensor_handle handles[2];
  struct raw_reply reply;
  struct message_tensor_open open = {.device = 0, .bytes = BYTES};
  int fd = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_int_equal(ftruncate(fd, BYTES), 0);
  assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  for (int i = 0; i < 2; i++) {
    raw_open(&sessions[i], witness.daemon.socket, 4, "int8");
    assert_true(raw_ask(sessions[i].socket, COMMAND_tensor_open, &open, &fd, 1, &handles[i], &reply));
    assert_int_equal(reply.status, STATUS_OK);
    assert_true(raw_ask(sessions[i].socket, COMMAND_tensor_open, &open, &fd, 1, &handles[i], &reply));
    assert_int_equal(reply.status, STATUS_OK);
  }
  raw_close(&sessions[0]);
  assert_true(raw_ask(sessions[1].socket, COMMAND_tensor_close, &handles[1], NULL, 0, NULL, &reply));
  assert_int_equal(reply.status, STATUS_OK);
  raw_close(&sessions[1]);
  close(fd);
  witness_undisturbed();
}

static void send_request(int socket, uint32_t id, enum command command, const struct message_type *type,
                         const void *body, const int *fds, size_t fd_count) {
  struct message_head head = {.kind = MESSAGE_REQUEST, .id = id, .code = command};
  struct error error;
  uint8_t bytes[1024];
  size_t length;
  assert_int_equal(message_encode(&head, type, body, bytes, sizeof bytes, &length, &error), STATUS_OK);
  raw_send(socket, bytes, length, fds, fd_count);
}

/* A client that has nothing more to say gets its answers, that of a load among them, and then the end. */
static void half_closed_sockets_are_answered(void **state) {
  static const float values[4] = {1, 2, 3, 4};
  static struct checkpoint checkpoint;
  const char *path = daemon_path(&witness.daemon, "half.safetensors");
  checkpoint_add(&checkpoint, "w", "F32", 2, 2, values, sizeof values);
  checkpoint_write(&checkpoint, path);
  int socket = raw_connect(witness.daemon.socket), file = open(path, O_RDONLY | O_CLOEXEC);
  struct message_ping ping = {.payload = 40}, pong;
  struct message_weight_load load = {.name = "half", .tensor = "w", .format = GEMM_FORMAT_INT8};
  struct message_weight_info info;
  struct raw_reply reply;
  hello(socket);
  send_request(socket, 5, COMMAND_weight_load, &message_weight_load_type, &load, &file, 1);
  for (uint32_t id = 6; id < 12; id++)
    send_request(socket, id, COMMAND_ping, &message_ping_type, &ping, NULL, 0);
  assert_int_equal(shutdown(socket, SHUT_WR), 0);
  for (uint32_t id = 6; id < 12; id++) {
    assert_true(raw_receive(socket, id, &message_ping_type, &pong, &reply));
    assert_int_equal(pong.payload, 40);
  }
  assert_true(raw_receive(socket, 5, &message_weight_info_type, &info, &reply));
  assert_int_equal(reply.status, STATUS_OK);
  raw_expect_end(socket);
  close(file);
  witness_ok(witness.session, gemmd_weight_unload(witness.session, "half", NULL));
  witness_undisturbed();
}

static void a_version_that_is_not_spoken(void **state) {
  int socket = raw_connect(witness.daemon.socket);
  struct raw_reply reply;
  struct message_hello_request request = {.version_min = 7, .version_max = 9, .client = "raw"};
  assert_true(raw_ask(socket, COMMAND_hello, &request, NULL, 0, NULL, &reply));
  assert_int_equal(reply.status, STATUS_VERSION);
  assert_string_equal(reply.error.text, "versions 1..1 are spoken here, 7..9 were offered");
  hello(socket);
  close(socket);
  witness_undisturbed();
}

static void commands_in_the_wrong_state(void **state) {
  int socket = raw_connect(witness.daemon.socket);
  struct message_ping ping = {1};
  struct message_hello_request again = {.version_min = 1, .version_max = 1};
  struct message_weight_name name = {.name = "int8"};
  struct message_queue_open queue = {0};
  struct message_arena_request arena = {.bytes = 4096, .entries = 2};
  struct message_arena_reply made;
  struct raw_reply reply;
  expect_status(socket, COMMAND_ping, &ping, STATUS_WRONG_STATE);
  expect_status(socket, COMMAND_weight_info, &name, STATUS_WRONG_STATE);
  hello(socket);
  expect_status(socket, COMMAND_hello, &again, STATUS_WRONG_STATE);
  expect_status(socket, COMMAND_weight_open, &name, STATUS_WRONG_STATE);
  expect_status(socket, COMMAND_queue_open, &queue, STATUS_WRONG_STATE);
  assert_true(raw_ask(socket, COMMAND_arena_create, &arena, NULL, 0, &made, &reply));
  assert_int_equal(reply.status, STATUS_OK);
  close(reply.fds[0]);
  close(reply.fds[1]);
  expect_status(socket, COMMAND_arena_create, &arena, STATUS_WRONG_STATE);
  queue.device = 64;
  expect_status(socket, COMMAND_queue_open, &queue, STATUS_INVALID);
  struct message_weight_close handles = {.parts_count = 1, .parts = {{.handle = 65536}}};
  expect_status(socket, COMMAND_weight_close, &handles, STATUS_NOT_FOUND);
  close(socket);
  witness_undisturbed();
}

static void commands_that_are_not_for_clients(void **state) {
  int socket = raw_connect(witness.daemon.socket);
  hello(socket);
  struct message_slab_create slab = {.slab = 1, .bytes = 1 << 21};
  struct message_session_id session = {.session = 1};
  struct message_empty empty = {0};
  expect_status(socket, COMMAND_slab_create, &slab, STATUS_PERMISSION);
  expect_status(socket, COMMAND_session_remove, &session, STATUS_PERMISSION);
  expect_status(socket, COMMAND_worker_stats, &empty, STATUS_PERMISSION);
  static const uint8_t unknown[] = {0x94, 0x00, 0x05, 0xcd, 0x30, 0x39, 0x80}; /* command 12345 */
  struct raw_reply reply;
  raw_send(socket, unknown, sizeof unknown, NULL, 0);
  assert_true(raw_receive(socket, 5, NULL, NULL, &reply));
  assert_int_equal(reply.status, STATUS_UNSUPPORTED);
  assert_non_null(strstr(reply.error.text, "12345"));
  close(socket);
  witness_undisturbed();
}

static void descriptors_too_few_and_too_many(void **state) {
  int socket = raw_connect(witness.daemon.socket), file = open(witness_model(), O_RDONLY);
  int fds[20] = {file, file, file, file, file, file, file, file, file, file,
                 file, file, file, file, file, file, file, file, file, file};
  struct raw_reply reply;
  struct message_ping ping = {1};
  struct message_weight_load load = {.name = "new", .tensor = "int8", .format = GEMM_FORMAT_INT8};
  hello(socket);
  expect_status(socket, COMMAND_weight_load, &load, STATUS_BAD_DESCRIPTOR);
  load.raw = true; /* what a loader alone is asked for */
  assert_true(raw_ask(socket, COMMAND_weight_load, &load, fds, 1, NULL, &reply));
  assert_int_equal(reply.status, STATUS_INVALID);
  load.raw = false;
  assert_true(raw_ask(socket, COMMAND_weight_load, &load, fds, 2, NULL, &reply));
  assert_int_equal(reply.status, STATUS_BAD_FILE); /* twice the same tensors */
  assert_true(raw_ask(socket, COMMAND_weight_load, &load, fds, 8, NULL, &reply));
  assert_int_equal(reply.status, STATUS_BAD_DESCRIPTOR);
  assert_non_null(strstr(reply.error.text, "1..7 files"));
  assert_true(raw_ask(socket, COMMAND_ping, &ping, fds, 1, NULL, &reply));
  assert_int_equal(reply.status, STATUS_BAD_DESCRIPTOR);
  static const uint8_t bytes[] = {0x94, 0x00, 0x05, 0x02, 0x80};
  raw_send(socket, bytes, sizeof bytes, fds, 20); /* more than a message may bring: truncated, the session ends */
  raw_expect_end(socket);
  close(file);
  witness_undisturbed();
}

#define RECORD(text)                                                                                                   \
  { text, sizeof(text) - 1 }

/* Each ends its session, and no other. */
static void messages_that_are_none(void **state) {
  static uint8_t large[LIMIT_MESSAGE_BYTES + 1];
  static const struct {
    const char *bytes;
    size_t length;
  } cases[] = {
      RECORD("x"),
      RECORD("\x94\x00\x05\x02"),
      RECORD("\x93\x00\x05\x02"),
      RECORD("\x94\x00\x05\x02\x81\xa7payload\x01\x00"),                              /* a byte too many */
      RECORD("\x94\x01\x05\x02\x81\xa7payload\x01"),                                  /* a reply */
      RECORD("\x94\x02\x05\x02\x81\xa7payload\x01"),                                  /* an event */
      RECORD("\x94\x00\x05\x02\x80"),                                                 /* payload is missing */
      RECORD("\x94\x00\x05\x02\x82\xa7payload\x01\xa7payload\x01"),                   /* and repeated */
      RECORD("\x94\x00\x05\x02\x81\xa7payload\xa1x"),                                 /* and text */
      RECORD("\x94\x00\x05\x02\x82\xa1x\x91\x91\x91\x91\x91\x91\x00\xa7payload\x01"), /* too deep */
      RECORD("\x94\x00\x05\x02\x81\xa1x\xdd\xff\xff\xff\xff"),                        /* an array of 2^32-1 */
      RECORD("\x94\x00\x05\x02\xdf\xff\xff\xff\xff"),
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    int socket = raw_connect(witness.daemon.socket);
    hello(socket);
    raw_send(socket, cases[i].bytes, cases[i].length, NULL, 0);
    raw_expect_end(socket);
  }
  int socket = raw_connect(witness.daemon.socket);
  hello(socket);
  memcpy(large, "\x94\x00\x05\x02\x81\xa7payload\x01", 14);
  raw_send(socket, large, sizeof large, NULL, 0);
  raw_expect_end(socket);
  witness_undisturbed();
}

/* ---- the rings */

static struct ring_submission good_submission(const struct raw_session *session) {
  return (struct ring_submission){.tag = 42,
                                  .opcode = RING_OP_PRODUCT,
                                  .weight = session->handle,
                                  .x_type = GEMM_F32,
                                  .y_type = GEMM_F32,
                                  .m = 2,
                                  .n = (uint32_t)witness_int8_shape.n,
                                  .k = (uint32_t)witness_int8_shape.k,
                                  .x_offset = session->tensor_offset,
                                  .y_offset = session->tensor_offset + 65536};
}

static void expect_completion(struct raw_session *session, const struct ring_submission *submission, enum status status,
                              const char *text) {
  struct ring_completion completion;
  struct error error = {.text = ""};
  raw_submit(session, submission, &completion);
  assert_int_equal(completion.tag, submission->tag);
  ring_completion_to_error(&completion, &error);
  if (completion.status != status || strstr(error.text, text) == NULL)
    fail_msg("%s: %s; in place of %s: ... %s", status_name(error.status), error.text, status_name(status), text);
}

static void submissions_that_cannot_be(void **state) {
  struct raw_session session;
  raw_open(&session, witness.daemon.socket, 4, "int8");
  const struct ring_submission good = good_submission(&session);
  struct {
    struct ring_submission submission;
    enum status status;
    const char *text;
  } cases[] = {
      {good, STATUS_INVALID, "M must be 1..16777216, got 0"},
      {good, STATUS_INVALID, "M must be 1..16777216, got 4294967295"},
      {good, STATUS_INVALID, "N must be 48, got 47"},
      {good, STATUS_INVALID, "K must be 100, got 101"},
      {good, STATUS_UNSUPPORTED, "x type e4m3 (5) is not supported with this weight"},
      {good, STATUS_UNSUPPORTED, "y type unknown (255) is not supported with this weight"},
      {good, STATUS_NOT_FOUND, "weight"},
      {good, STATUS_NOT_FOUND, "weight"},
      {good, STATUS_INVALID, "x offset must be"},
      {good, STATUS_INVALID, "x offset must be"},
      {good, STATUS_INVALID, "y offset must be"},
      {good, STATUS_INVALID, "y offset must be a multiple of 16"},
      {good, STATUS_INVALID, "y overlaps x, bias or x scale"},
      {good, STATUS_INVALID, "x stride must be 400"},
      {good, STATUS_INVALID, "bytes must be"},
      {good, STATUS_INVALID, "opcode must be 0..5, got 77"},
      {good, STATUS_NOT_FOUND, "event 1: not found"},
      {good, STATUS_NOT_FOUND, "y tensor"},
      {good, STATUS_INVALID, "w offset must be 0"},
      {good, STATUS_INVALID, "w stride must be 0"},
      {good, STATUS_UNSUPPORTED, "x type f32 (1) is not supported"},
      {good, STATUS_INVALID, "w offset must be"},
      {good, STATUS_INVALID, "w stride must be 200"},
      {good, STATUS_INVALID, "W overlaps y"},
      {good, STATUS_INVALID, "N must be 1..16777216, got 0"},
      {good, STATUS_INVALID, "bytes must be"},
  };
  cases[0].submission.m = 0;
  cases[1].submission.m = UINT32_MAX;
  cases[2].submission.n = 47;
  cases[3].submission.k = 101;
  cases[4].submission.x_type = GEMM_E4M3;
  cases[5].submission.y_type = 255;
  cases[6].submission.weight += 1 << 16; /* another generation */
  cases[7].submission.weight = UINT32_MAX;
  cases[8].submission.x_offset = 0; /* the rings */
  cases[9].submission.x_offset = session.bytes;
  cases[10].submission.y_offset = UINT64_MAX - 15;
  cases[11].submission.y_offset += 8;
  cases[12].submission.y_offset = good.x_offset + 16;
  cases[13].submission.x_stride = 4;
  cases[14].submission.y_stride = (uint64_t)1 << 63;
  cases[15].submission.opcode = 77;
  cases[16].submission.event = 1;
  cases[17].submission.y_tensor = 1;
  cases[18].submission.w_offset = good.x_offset;
  cases[19].submission.w_stride = 200;
  for (size_t i = 20; i < COUNT(cases); i++) { /* tensors: W [48, 100] where x is */
    cases[i].submission.opcode = RING_OP_TENSORS;
    cases[i].submission.weight = 0;
    cases[i].submission.w_offset = good.x_offset;
    cases[i].submission.x_type = i == 20 ? GEMM_F32 : GEMM_F16;
    cases[i].submission.x_stride = 0;
  }
  cases[21].submission.w_offset = 0; /* the rings */
  cases[22].submission.w_stride = 198;
  cases[23].submission.w_offset = good.y_offset;
  cases[24].submission.n = 0;
  cases[25].submission.w_stride = (uint64_t)1 << 62;
  for (size_t i = 0; i < COUNT(cases); i++) {
    cases[i].submission.tag = 1000 + i;
    expect_completion(&session, &cases[i].submission, cases[i].status, cases[i].text);
  }
  struct ring_submission nothing = {.tag = 5, .opcode = RING_OP_NOP};
  expect_completion(&session, &nothing, STATUS_OK, "");
  expect_completion(&session, &good, STATUS_OK, ""); /* and the session is as good as before */
  raw_close(&session);
  witness_undisturbed();
}

/* Sessions that were ended because of what the client did, as monitoring sees it. */
static unsigned cut_off(void) {
  char *text;
  unsigned count = 0;
  witness_ok(witness.session, gemmd_metrics(witness.session, &text));
  const char *at = strstr(text, "\ngemmd_cut_off_total ");
  assert_non_null(at);
  assert_int_equal(sscanf(at, " gemmd_cut_off_total %u", &count), 1);
  free(text);
  return count;
}

/* Why, before the end. */
static void expect_broken(int socket) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head;
  struct message_body body;
  struct message_session_broken broken;
  struct error error;
  ssize_t length = recv(socket, bytes, sizeof bytes, 0);
  assert_true(length > 0);
  assert_int_equal(message_decode_head(bytes, (size_t)length, &head, &body, &error), STATUS_OK);
  assert_true(head.kind == MESSAGE_EVENT && head.id == 0 && head.code == EVENT_session_broken);
  assert_int_equal(message_decode_body(body, &message_session_broken_type, &broken, &error), STATUS_OK);
  assert_true(strlen(broken.text) > 0);
}

/* Indices that cannot be true end the session that wrote them. */
static void rings_that_lie(void **state) {
  static const uint32_t tails[] = {5, 1u << 31, UINT32_MAX};
  unsigned before = cut_off();
  for (size_t i = 0; i < COUNT(tails); i++) {
    struct raw_session session;
    raw_open(&session, witness.daemon.socket, 4, "int8");
    atomic_store(&session.ring.queue->submission_tail, tails[i]);
    raw_ring(&session);
    expect_broken(session.socket);
    raw_expect_end(session.socket);
    session.socket = -1;
    raw_close(&session);
    witness_undisturbed();
  }
  assert_int_equal(cut_off() - before, COUNT(tails));
}

/* So does a generation that no worker has had. */
static void generations_that_never_were(void **state) {
  static const uint32_t generations[] = {0, 2, UINT32_MAX};
  for (size_t i = 0; i < COUNT(generations); i++) {
    struct raw_session session;
    raw_open(&session, witness.daemon.socket, 4, "int8");
    atomic_store(&session.ring.queue->client_generation, generations[i]);
    raw_ring(&session);
    expect_broken(session.socket);
    raw_expect_end(session.socket);
    session.socket = -1;
    raw_close(&session);
    witness_undisturbed();
  }
}

/* Whoever makes the descriptor block by which gemmd wakes it loses its session, and holds nobody up. */
static void a_wakeup_that_blocks(void **state) {
  struct raw_session session;
  const struct ring_submission nothing = {.opcode = RING_OP_NOP};
  const uint64_t most = UINT64_MAX - 1;
  uint64_t count;
  bool wake;
  raw_open(&session, witness.daemon.socket, 4, "int8");
  (void)!read(session.wakeup, &count, sizeof count);
  assert_int_equal(write(session.wakeup, &most, sizeof most), sizeof most);
  assert_int_equal(fcntl(session.wakeup, F_SETFL, 0), 0);
  assert_true(ring_client_sleep(&session.ring));
  assert_true(ring_client_submit(&session.ring, &nothing, &wake));
  raw_ring(&session);
  raw_expect_end(session.socket);
  munmap(session.arena, session.bytes);
  close(session.doorbell);
  close(session.wakeup);
  witness_undisturbed();
}

/* A session's handle means nothing in another one. */
static void handles_of_others(void **state) {
  struct raw_session one, two;
  raw_open(&one, witness.daemon.socket, 4, "int8");
  raw_open(&two, witness.daemon.socket, 4, "f16");
  struct message_weight_close handles = {.parts_count = 1, .parts = {{.handle = two.handle}}};
  struct raw_reply reply;
  assert_true(raw_ask(two.socket, COMMAND_weight_close, &handles, NULL, 0, NULL, &reply));
  assert_int_equal(reply.status, STATUS_OK);
  struct ring_submission submission = good_submission(&two);
  submission.weight = one.handle;
  expect_completion(&two, &submission, STATUS_NOT_FOUND, "weight");
  submission = good_submission(&one);
  expect_completion(&one, &submission, STATUS_OK, "");
  raw_close(&two);
  raw_close(&one);
  witness_undisturbed();
}

/* The lowest number that is no descriptor of gemmd's. */
static rlim_t lowest_free(void) {
  char path[64];
  struct stat link;
  rlim_t fd = 0;
  do
    snprintf(path, sizeof path, "/proc/%d/fd/%u", (int)witness.daemon.pid, (unsigned)fd++);
  while (lstat(path, &link) == 0);
  return fd - 1;
}

/* Whoever cannot be let in is told so by the end of the connection, each one anew, and does not keep gemmd busy. */
static void clients_without_a_descriptor(void **state) {
  enum { CLIENTS = 5 };
  struct rlimit limit;
  int sockets[CLIENTS];
  assert_int_equal(prlimit(witness.daemon.pid, RLIMIT_NOFILE, NULL, &limit), 0);
  const struct rlimit low = {.rlim_cur = lowest_free(), .rlim_max = limit.rlim_max};
  assert_int_equal(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &low, NULL), 0);
  for (int i = 0; i < CLIENTS; i++)
    sockets[i] = raw_connect(witness.daemon.socket);
  for (int i = 0; i < CLIENTS; i++)
    raw_expect_end(sockets[i]);
  assert_int_equal(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &limit, NULL), 0);
  assert_int_equal(daemon_log_count(&witness.daemon, "no descriptors left: a client is turned away"), CLIENTS);
  sockets[0] = raw_connect(witness.daemon.socket);
  hello(sockets[0]);
  close(sockets[0]);
  witness_undisturbed();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_id_comes_back),
      cmocka_unit_test(one_memory_in_two_sessions),
      cmocka_unit_test(half_closed_sockets_are_answered),
      cmocka_unit_test(a_version_that_is_not_spoken),
      cmocka_unit_test(commands_in_the_wrong_state),
      cmocka_unit_test(commands_that_are_not_for_clients),
      cmocka_unit_test(descriptors_too_few_and_too_many),
      cmocka_unit_test(messages_that_are_none),
      cmocka_unit_test(submissions_that_cannot_be),
      cmocka_unit_test(rings_that_lie),
      cmocka_unit_test(generations_that_never_were),
      cmocka_unit_test(a_wakeup_that_blocks),
      cmocka_unit_test(handles_of_others),
      cmocka_unit_test(clients_without_a_descriptor),
  };
  return cmocka_run_group_tests(tests, witness_start, witness_stop);
}
