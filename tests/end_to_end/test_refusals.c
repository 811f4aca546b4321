/* Bad input to the real daemon: each gets a status and a sentence with the field and the value, nothing is lost, and a
 * witness, a session that was there all along, still gets right products. */
#include "client/gemmclient.h"
#include "tests/support/checkpoint.h"
#include "tests/support/daemon.h"
#include "tests/support/oracle.h"
#include "tests/support/product.h"
#include "tests/support/raw.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct gemm_weight shape = {48, 100, GEMM_FORMAT_INT8, GEMM_SCALE_ROW};
static const struct gemm_weight other_shape = {16, 64, GEMM_FORMAT_F16, GEMM_SCALE_NONE};

static struct daemon daemon_under_test;
static struct oracle_weight weight, other_weight; /* "int8" and "f16" */
static gemmd_session *witness;
static gemmd_weight *handle, *f16; /* of the witness */

static void expect_ok(gemmd_session *session, int status) {
  if (status != GEMMD_OK)
    fail_msg("%s: %s", gemmd_status_name(status), gemmd_error(session));
}

static void expect(gemmd_session *session, int status, int expected, const char *text) {
  if (status != expected || strstr(gemmd_error(session), text) == NULL)
    fail_msg("%s: %s; in place of %s: ... %s", gemmd_status_name(status), gemmd_error(session),
             gemmd_status_name(expected), text);
}

static const char *model(void) {
  return daemon_path(&daemon_under_test, "model.safetensors");
}

static gemmd_load load_of(const char *tensor, const char *name, enum gemmd_format format) {
  return (gemmd_load){.name = name, .tensor = tensor, .format = format, .device = -1};
}

/* After each refusal the rest goes on. */
static void assert_others_undisturbed(void) {
  static uint64_t seed;
  gemmd_daemon_info info;
  struct product_request request = {.weight = &weight, .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = ++seed};
  expect_ok(witness, gemmd_ping(witness, NULL));
  assert_true(product_run(witness, handle, &request));
  expect_ok(witness, gemmd_daemon_status(witness, &info));
  assert_int_equal(info.pid, daemon_under_test.pid);
  assert_int_equal(info.device[0].restarts, 0);
  assert_int_equal(info.names, 2);
  assert_int_equal(info.weights, 2);
}

static int start(void **state) {
  (void)state;
  static struct checkpoint checkpoint;
  daemon_make(&daemon_under_test, "sessions_max = 8\narena_bytes_max = 67108864\n");
  oracle_weight_make(&weight, &shape, 1);
  oracle_weight_make(&other_weight, &other_shape, 2);
  checkpoint_add_weight(&checkpoint, "int8", &weight);
  checkpoint_add_weight(&checkpoint, "f16", &other_weight);
  checkpoint_write(&checkpoint, model());
  checkpoint_free(&checkpoint);
  daemon_start(&daemon_under_test);
  gemmd_options options = {.entries = 2};
  expect_ok(witness, gemmd_connect(&witness, daemon_under_test.socket, &options));
  gemmd_load loads[] = {load_of("int8", "int8", GEMMD_FORMAT_INT8), load_of("f16", "f16", GEMMD_FORMAT_F16)};
  for (size_t i = 0; i < COUNT(loads); i++)
    expect_ok(witness, gemmd_weight_load_file(witness, model(), &loads[i], NULL));
  expect_ok(witness, gemmd_weight_open(witness, "int8", &handle));
  expect_ok(witness, gemmd_weight_open(witness, "f16", &f16));
  return 0;
}

static int stop(void **state) {
  (void)state;
  gemmd_disconnect(witness);
  daemon_stop(&daemon_under_test);
  daemon_remove(&daemon_under_test);
  oracle_weight_free(&weight);
  oracle_weight_free(&other_weight);
  return 0;
}

/* ---- products, through the library */

static void products_that_cannot_be(void **state) {
  (void)state;
  char *memory = gemmd_alloc(witness, 65536);
  static float outside[4800];
  assert_non_null(memory);
  const gemmd_product good = {.m = 2, .x = memory, .x_type = GEMMD_F32, .y = memory + 32768, .y_type = GEMMD_F32};
  struct {
    gemmd_weight *weight;
    gemmd_product product;
    int status;
    const char *text;
  } cases[] = {
      {handle, good, GEMMD_INVALID, "M must be 1..16777216, got 0"},
      {handle, good, GEMMD_UNSUPPORTED, "x type e4m3 (5) is not supported with this weight"},
      {handle, good, GEMMD_UNSUPPORTED, "y type s32 (6) is not supported with this weight"},
      {f16, good, GEMMD_UNSUPPORTED, "x type f32 (1) is not supported with this weight"},
      {handle, good, GEMMD_INVALID, "x must lie in the session's arena"},
      {handle, good, GEMMD_INVALID, "y must not be NULL"},
      {handle, good, GEMMD_INVALID, "must be a multiple of 16, got"},
      {handle, good, GEMMD_INVALID, "y overlaps x, bias or x scale"},
      {handle, good, GEMMD_INVALID, "x stride must be 400..9223372036854775807, got 399"},
      {handle, good, GEMMD_INVALID, "bytes must be 0.."},
  };
  cases[0].product.m = 0;
  cases[1].product.x_type = GEMMD_E4M3;
  cases[1].product.x_scale = (float *)(memory + 49152);
  cases[2].product.y_type = GEMMD_S32;
  cases[4].product.x = outside;
  cases[5].product.y = NULL;
  cases[6].product.x = memory + 4;
  cases[7].product.y = memory + 400;
  cases[8].product.x_stride = 399;
  cases[9].product.m = 1u << 24;
  for (size_t i = 0; i < COUNT(cases); i++) {
    uint64_t ticket = 7;
    expect(witness, gemmd_matmul(cases[i].weight, &cases[i].product), cases[i].status, cases[i].text);
    expect(witness, gemmd_submit(cases[i].weight, &cases[i].product, &ticket), cases[i].status, cases[i].text);
    assert_non_null(strstr(gemmd_error(witness), cases[i].weight == f16 ? "(weight \"f16\")" : "(weight \"int8\")"));
    assert_int_equal(ticket, 0);
  }
  expect(witness, gemmd_wait(witness, 12345, 0, NULL), GEMMD_INVALID, "12345");
  gemmd_free(witness, memory);
  assert_others_undisturbed();
}

static void no_free_slot(void **state) {
  (void)state;
  struct product products[2], third;
  struct product_request request = {.weight = &weight, .m = 4, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 1};
  uint64_t ticket;
  assert_true(product_make(&third, witness, &request));
  for (int i = 0; i < 2; i++) {
    assert_true(product_make(&products[i], witness, &request));
    expect_ok(witness, gemmd_submit(handle, &products[i].product, &products[i].ticket));
  }
  expect(witness, gemmd_submit(handle, &third.product, &ticket), GEMMD_BUSY, "2");
  for (int i = 0; i < 2; i++) {
    expect_ok(witness, gemmd_wait(witness, products[i].ticket, -1, NULL));
    assert_true(product_right(&products[i]));
    product_free(&products[i], witness);
  }
  expect_ok(witness, gemmd_matmul(handle, &third.product));
  assert_true(product_right(&third));
  product_free(&third, witness);
  assert_others_undisturbed();
}

static void no_room_in_the_arena(void **state) {
  (void)state;
  assert_null(gemmd_alloc(witness, (size_t)1 << 40));
  assert_true(strlen(gemmd_error(witness)) > 0);
  assert_null(gemmd_alloc(witness, SIZE_MAX));
  gemmd_options options = {.arena_bytes = (size_t)67108865};
  gemmd_session *session = NULL;
  expect(session, gemmd_connect(&session, daemon_under_test.socket, &options) == GEMMD_TOO_LARGE ? GEMMD_OK : -1,
         GEMMD_OK, "");
  assert_non_null(strstr(gemmd_error(session), "67108865"));
  gemmd_disconnect(session);
  assert_others_undisturbed();
}

/* ---- names and files */

static void names_that_nothing_stands_for(void **state) {
  (void)state;
  gemmd_weight *none;
  gemmd_weight_info info;
  char long_name[300];
  memset(long_name, 'n', sizeof long_name - 1);
  long_name[sizeof long_name - 1] = '\0';
  expect(witness, gemmd_weight_open(witness, "nobody", &none), GEMMD_NOT_FOUND, "nobody");
  expect(witness, gemmd_weight_stat(witness, "nobody", &info), GEMMD_NOT_FOUND, "nobody");
  expect(witness, gemmd_weight_unload(witness, "nobody", NULL), GEMMD_NOT_FOUND, "nobody");
  expect(witness, gemmd_weight_stat(witness, long_name, &info), GEMMD_INVALID, "255");
  gemmd_load load = load_of("int8", "", GEMMD_FORMAT_INT8);
  expect(witness, gemmd_weight_load_file(witness, model(), &load, NULL), GEMMD_INVALID, "name");
  load = load_of("int8", long_name, GEMMD_FORMAT_INT8);
  expect(witness, gemmd_weight_load_file(witness, model(), &load, NULL), GEMMD_INVALID, "255");
  load = load_of("int8", "bad\xff", GEMMD_FORMAT_INT8);
  expect(witness, gemmd_weight_load_file(witness, model(), &load, NULL), GEMMD_INVALID, "UTF-8");
  load = load_of("missing", "new", GEMMD_FORMAT_INT8);
  expect(witness, gemmd_weight_load_file(witness, model(), &load, NULL), GEMMD_NOT_FOUND, "missing");
  load = load_of("int8", "new", GEMMD_FORMAT_INT8);
  expect(witness, gemmd_weight_load_file(witness, "/nonexistent", &load, NULL), GEMMD_NOT_FOUND,
         "cannot open /nonexistent: No such file");
  assert_others_undisturbed();
}

static void a_name_for_other_content(void **state) {
  (void)state;
  gemmd_weight_info info;
  gemmd_load load = load_of("f16", "int8", GEMMD_FORMAT_F16);
  expect(witness, gemmd_weight_load_file(witness, model(), &load, NULL), GEMMD_EXISTS, "\"int8\"");
  expect_ok(witness, gemmd_weight_stat(witness, "int8", &info));
  assert_int_equal(info.format, GEMMD_FORMAT_INT8);
  load = load_of("int8", "int8", GEMMD_FORMAT_INT8);
  expect_ok(witness, gemmd_weight_load_file(witness, model(), &load, &info)); /* equal content is no conflict */
  assert_int_equal(info.references, 1);
  load = load_of("f16", "int8", GEMMD_FORMAT_F16);
  load.replace = true;
  expect_ok(witness, gemmd_weight_load_file(witness, model(), &load, &info));
  assert_int_equal(info.format, GEMMD_FORMAT_F16);
  load = load_of("int8", "int8", GEMMD_FORMAT_INT8);
  load.replace = true;
  expect_ok(witness, gemmd_weight_load_file(witness, model(), &load, NULL));
  assert_others_undisturbed();
}

static void forms_that_a_tensor_does_not_take(void **state) {
  (void)state;
  struct {
    gemmd_load load;
    int status;
    const char *text;
  } cases[] = {
      {load_of("int8", "new", (enum gemmd_format)0), GEMMD_INVALID, "format must be 1..5, got 0"},
      {load_of("int8", "new", (enum gemmd_format)6), GEMMD_INVALID, "format must be 1..5, got 6"},
      {load_of("int8", "new", GEMMD_FORMAT_FP8), GEMMD_UNSUPPORTED, "int8"},
      {load_of("f16", "new", GEMMD_FORMAT_FP8), GEMMD_INVALID, "scale mode group does not go with format fp8"},
      {load_of("f16", "new", GEMMD_FORMAT_INT8), GEMMD_INVALID, "method 3 does not go with format int8"},
      {load_of("f16", "new", GEMMD_FORMAT_INT8), GEMMD_INVALID, "placement must be 0..2, got 9"},
      {load_of("f16", "new", GEMMD_FORMAT_INT8), GEMMD_INVALID, "device"},
      {load_of("int8_scale", "new", GEMMD_FORMAT_INT8), GEMMD_UNSUPPORTED, "dimension"},
  };
  cases[3].load.scale = GEMMD_SCALE_GROUP;
  cases[4].load.method = GEMMD_METHOD_TERNARY;
  cases[5].load.placement = (enum gemmd_placement)9;
  cases[6].load.device = 64;
  for (size_t i = 0; i < COUNT(cases); i++)
    expect(witness, gemmd_weight_load_file(witness, model(), &cases[i].load, NULL), cases[i].status, cases[i].text);
  assert_others_undisturbed();
}

static void descriptors_that_are_no_file_to_read(void **state) {
  (void)state;
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  int fds[] = {pipes[0], open("/tmp", O_RDONLY | O_DIRECTORY), open("/dev/zero", O_RDONLY), open(model(), O_WRONLY),
               open(model(), O_PATH)};
  gemmd_load load = load_of("int8", "new", GEMMD_FORMAT_INT8);
  for (size_t i = 0; i < COUNT(fds); i++) {
    assert_true(fds[i] >= 0);
    expect(witness, gemmd_weight_load(witness, fds[i], &load, NULL), GEMMD_BAD_DESCRIPTOR, "");
    close(fds[i]);
  }
  close(pipes[1]);
  assert_int_not_equal(gemmd_weight_load(witness, -1, &load, NULL), GEMMD_OK);
  assert_others_undisturbed();
}

/* Loads from a file that begins with `length`, has `json` behind it, and is `bytes` long in all. */
static int load_lie(uint64_t length, const char *json, off_t bytes) {
  int fd = memfd_create("lie", MFD_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, &length, sizeof length), sizeof length);
  assert_int_equal(write(fd, json, strlen(json)), (ssize_t)strlen(json));
  assert_int_equal(ftruncate(fd, bytes), 0);
  gemmd_load load = load_of("t", "lie", GEMMD_FORMAT_F16);
  int status = gemmd_weight_load(witness, fd, &load, NULL);
  close(fd);
  return status;
}

static void files_that_lie(void **state) {
  (void)state;
  static const struct {
    const char *json;
    int64_t length, data; /* length of the header as the file says, less the true one; bytes behind the header */
    const char *text;
  } cases[] = {
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}", 0, 31, "32"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}", 0, 33, "no tensor"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}", 1000, 32, "header"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}", INT64_MAX, 32, "header"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}", -5, 37, "header"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,5],\"data_offsets\":[0,32]}}", 0, 32, "'t'"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[32,0]}}", 0, 32, "'t'"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[-2,-4],\"data_offsets\":[0,32]}}", 0, 32, "'t'"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,32]}}", 0, 32, "'t'"},
      {"{\"t\":{\"dtype\":\"F99\",\"shape\":[2,4],\"data_offsets\":[0,32]}}", 0, 32, "F99"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]},"
       "\"u\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[16,48]}}",
       0, 48, "overlaps"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]},"
       "\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[32,64]}}",
       0, 64, "header"},
      {"{\"t\":", 0, 32, "header"},
      {"[1,2,3,4]", 0, 32, "header"},
      {"{\"t\":7}", 0, 32, "'t'"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    size_t length = strlen(cases[i].json);
    expect(witness,
           load_lie((uint64_t)((int64_t)length + (cases[i].length == INT64_MAX ? 0 : cases[i].length)) |
                        (cases[i].length == INT64_MAX ? (uint64_t)1 << 63 : 0),
                    cases[i].json, (off_t)(8 + length) + cases[i].data),
           GEMMD_BAD_FILE, cases[i].text);
  }
  expect(witness, load_lie(0, "", 10), GEMMD_BAD_FILE, "byte 8");
  expect(witness, load_lie(0, "", 9), GEMMD_BAD_FILE, "file has 9 bytes; a safetensors file has at least 10");
  expect(witness, load_lie(0, "", 3), GEMMD_BAD_FILE, "3 bytes");
  assert_others_undisturbed();
}

static void numbers_that_are_none(void **state) {
  (void)state;
  static struct checkpoint checkpoint;
  float values[2][8] = {{1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, NAN, 5, 6, 7, 8}};
  const char *path = daemon_path(&daemon_under_test, "nan.safetensors");
  checkpoint_add(&checkpoint, "t", "F32", 2, 8, values, sizeof values);
  checkpoint_write(&checkpoint, path);
  checkpoint_free(&checkpoint);
  gemmd_load load = load_of("t", "new", GEMMD_FORMAT_INT8);
  expect(witness, gemmd_weight_load_file(witness, path, &load, NULL), GEMMD_BAD_FILE, "row 1, column 3");
  assert_others_undisturbed();
}

/* 8 TiB of zeros: a file of one page. */
static void no_room_for_a_weight(void **state) {
  (void)state;
  static const char json[] =
      "{\"t\":{\"dtype\":\"F16\",\"shape\":[2097152,2097152],\"data_offsets\":[0,8796093022208]}}";
  expect(witness, load_lie(sizeof json - 1, json, (off_t)(8 + sizeof json - 1) + 8796093022208), GEMMD_NOMEM, "");
  assert_others_undisturbed();
}

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

static void a_version_that_is_not_spoken(void **state) {
  (void)state;
  int socket = raw_connect(daemon_under_test.socket);
  struct raw_reply reply;
  struct message_hello_request request = {.version_min = 7, .version_max = 9, .client = "raw"};
  assert_true(raw_ask(socket, COMMAND_hello, &request, NULL, 0, NULL, &reply));
  assert_int_equal(reply.status, STATUS_VERSION);
  assert_string_equal(reply.error.text, "versions 1..1 are spoken here, 7..9 were offered");
  hello(socket);
  close(socket);
  assert_others_undisturbed();
}

static void commands_in_the_wrong_state(void **state) {
  (void)state;
  int socket = raw_connect(daemon_under_test.socket);
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
  assert_others_undisturbed();
}

static void commands_that_are_not_for_clients(void **state) {
  (void)state;
  int socket = raw_connect(daemon_under_test.socket);
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
  assert_others_undisturbed();
}

static void descriptors_too_few_and_too_many(void **state) {
  (void)state;
  int socket = raw_connect(daemon_under_test.socket), file = open(model(), O_RDONLY);
  int fds[20] = {file, file, file, file, file, file, file, file, file, file,
                 file, file, file, file, file, file, file, file, file, file};
  struct raw_reply reply;
  struct message_ping ping = {1};
  struct message_weight_load load = {.name = "new", .tensor = "int8", .format = GEMM_FORMAT_INT8};
  hello(socket);
  expect_status(socket, COMMAND_weight_load, &load, STATUS_BAD_DESCRIPTOR);
  assert_true(raw_ask(socket, COMMAND_weight_load, &load, fds, 2, NULL, &reply));
  assert_int_equal(reply.status, STATUS_BAD_DESCRIPTOR);
  assert_true(raw_ask(socket, COMMAND_ping, &ping, fds, 1, NULL, &reply));
  assert_int_equal(reply.status, STATUS_BAD_DESCRIPTOR);
  static const uint8_t bytes[] = {0x94, 0x00, 0x05, 0x02, 0x80};
  raw_send(socket, bytes, sizeof bytes, fds, 20); /* more than a message may bring: truncated, the session ends */
  raw_expect_end(socket);
  close(file);
  assert_others_undisturbed();
}

#define RECORD(text)                                                                                                   \
  { text, sizeof(text) - 1 }

/* Each ends its session, and no other. */
static void messages_that_are_none(void **state) {
  (void)state;
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
    int socket = raw_connect(daemon_under_test.socket);
    hello(socket);
    raw_send(socket, cases[i].bytes, cases[i].length, NULL, 0);
    raw_expect_end(socket);
  }
  int socket = raw_connect(daemon_under_test.socket);
  hello(socket);
  memcpy(large, "\x94\x00\x05\x02\x81\xa7payload\x01", 14);
  raw_send(socket, large, sizeof large, NULL, 0);
  raw_expect_end(socket);
  assert_others_undisturbed();
}

/* ---- the rings */

static struct ring_submission good_submission(const struct raw_session *session) {
  return (struct ring_submission){.tag = 42,
                                  .opcode = RING_OP_PRODUCT,
                                  .weight = session->handle,
                                  .x_type = GEMM_F32,
                                  .y_type = GEMM_F32,
                                  .m = 2,
                                  .n = (uint32_t)shape.n,
                                  .k = (uint32_t)shape.k,
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
  (void)state;
  struct raw_session session;
  raw_open(&session, daemon_under_test.socket, 4, "int8");
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
      {good, STATUS_INVALID, "opcode must be 1, got 77"},
      {good, STATUS_INVALID, "flags must be 0, got 1"},
      {good, STATUS_INVALID, "reserved must be 0"},
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
  cases[16].submission.flags = 1;
  cases[17].submission.reserved2[39] = 1;
  for (size_t i = 0; i < COUNT(cases); i++) {
    cases[i].submission.tag = 1000 + i;
    expect_completion(&session, &cases[i].submission, cases[i].status, cases[i].text);
  }
  struct ring_submission nothing = {.tag = 5, .opcode = RING_OP_NOP};
  expect_completion(&session, &nothing, STATUS_OK, "");
  expect_completion(&session, &good, STATUS_OK, ""); /* and the session is as good as before */
  raw_close(&session);
  assert_others_undisturbed();
}

/* Indices that cannot be true end the session that wrote them. */
static void rings_that_lie(void **state) {
  (void)state;
  static const uint32_t tails[] = {5, 1u << 31, UINT32_MAX};
  for (size_t i = 0; i < COUNT(tails); i++) {
    struct raw_session session;
    raw_open(&session, daemon_under_test.socket, 4, "int8");
    atomic_store(&session.ring.queue->submission_tail, tails[i]);
    raw_ring(&session);
    raw_expect_end(session.socket);
    session.socket = -1;
    raw_close(&session);
    assert_others_undisturbed();
  }
}

/* A session's handle means nothing in another one. */
/* Whoever makes the descriptor block by which gemmd wakes it loses its session, and holds nobody up. */
static void a_wakeup_that_blocks(void **state) {
  (void)state;
  struct raw_session session;
  const struct ring_submission nothing = {.opcode = RING_OP_NOP};
  const uint64_t most = UINT64_MAX - 1;
  uint64_t count;
  bool wake;
  raw_open(&session, daemon_under_test.socket, 4, "int8");
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
  assert_others_undisturbed();
}

static void handles_of_others(void **state) {
  (void)state;
  struct raw_session one, two;
  raw_open(&one, daemon_under_test.socket, 4, "int8");
  raw_open(&two, daemon_under_test.socket, 4, "f16");
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
  assert_others_undisturbed();
}

/* ---- who is served at all */

static void too_many_sessions(void **state) {
  (void)state;
  gemmd_session *sessions[8], *extra = NULL;
  for (int i = 0; i < 7; i++)
    expect_ok(sessions[i], gemmd_connect(&sessions[i], daemon_under_test.socket, NULL));
  expect(extra, gemmd_connect(&extra, daemon_under_test.socket, NULL) == GEMMD_BUSY ? GEMMD_OK : -1, GEMMD_OK, "");
  assert_non_null(strstr(gemmd_error(extra), "8 sessions"));
  gemmd_disconnect(extra);
  for (int i = 0; i < 7; i++)
    gemmd_disconnect(sessions[i]);
  assert_others_undisturbed();
}

static void a_second_daemon(void **state) {
  (void)state;
  assert_int_equal(daemon_fail_to_start(&daemon_under_test), 1);
  assert_int_equal(daemon_log_count(&daemon_under_test, "another gemmd serves"), 1);
  assert_others_undisturbed();
}

static void nobody_at_the_socket(void **state) {
  (void)state;
  gemmd_session *session = NULL;
  int status = gemmd_connect(&session, daemon_path(&daemon_under_test, "nothing"), NULL);
  expect(session, status, GEMMD_DISCONNECTED, "nothing");
  gemmd_disconnect(session);
}

/* Its own daemon: killed, found dead by its clients, and started again over the socket that it left. */
static void a_stale_socket(void **state) {
  (void)state;
  struct daemon daemon;
  struct stat stat_of;
  gemmd_session *session = NULL, *next = NULL;
  gemmd_weight *own;
  daemon_make(&daemon, "");
  daemon_start(&daemon);
  expect_ok(session, gemmd_connect(&session, daemon.socket, NULL));
  gemmd_load load = load_of("int8", "int8", GEMMD_FORMAT_INT8);
  expect_ok(session, gemmd_weight_load_file(session, model(), &load, NULL));
  expect_ok(session, gemmd_weight_open(session, "int8", &own));
  daemon_kill(&daemon);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_DISCONNECTED);
  struct product product;
  struct product_request request = {.weight = &weight, .m = 2, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 1};
  assert_true(product_make(&product, session, &request));
  assert_int_equal(gemmd_matmul(own, &product.product), GEMMD_DISCONNECTED);
  product_free(&product, session);
  gemmd_disconnect(session);

  assert_int_equal(lstat(daemon.socket, &stat_of), 0);
  assert_true(S_ISSOCK(stat_of.st_mode));
  assert_int_equal(gemmd_connect(&next, daemon.socket, NULL), GEMMD_DISCONNECTED);
  gemmd_disconnect(next);
  daemon_start(&daemon);
  expect_ok(next, gemmd_connect(&next, daemon.socket, NULL));
  expect_ok(next, gemmd_ping(next, NULL));
  gemmd_disconnect(next);
  daemon_stop(&daemon);
  assert_int_equal(lstat(daemon.socket, &stat_of), -1);
  daemon_remove(&daemon);
}

/* Something else at the path is not removed. */
static void a_file_at_the_sockets_path(void **state) {
  (void)state;
  struct daemon daemon;
  char text[8] = "";
  daemon_make(&daemon, "");
  int fd = open(daemon.socket, O_RDWR | O_CREAT, 0600);
  assert_int_equal(write(fd, "mine", 4), 4);
  assert_int_equal(daemon_fail_to_start(&daemon), 1);
  assert_int_equal(daemon_log_count(&daemon, "is there and no socket"), 1);
  assert_int_equal(pread(fd, text, sizeof text - 1, 0), 4);
  assert_string_equal(text, "mine");
  close(fd);
  daemon_remove(&daemon);
}

static void options_that_there_are_not(void **state) {
  (void)state;
  struct daemon daemon;
  daemon_make(&daemon, "colour = blue\n");
  assert_int_equal(daemon_fail_to_start(&daemon), 2);
  assert_int_equal(daemon_log_count(&daemon, "colour"), 1);
  daemon_remove(&daemon);
  daemon_make(&daemon, "in_flight = 65\n");
  assert_int_equal(daemon_fail_to_start(&daemon), 2);
  assert_int_equal(daemon_log_count(&daemon, "in_flight must be 1..64, got 65"), 1);
  daemon_remove(&daemon);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_that_cannot_be),
      cmocka_unit_test(no_free_slot),
      cmocka_unit_test(no_room_in_the_arena),
      cmocka_unit_test(names_that_nothing_stands_for),
      cmocka_unit_test(a_name_for_other_content),
      cmocka_unit_test(forms_that_a_tensor_does_not_take),
      cmocka_unit_test(descriptors_that_are_no_file_to_read),
      cmocka_unit_test(files_that_lie),
      cmocka_unit_test(numbers_that_are_none),
      cmocka_unit_test(no_room_for_a_weight),
      cmocka_unit_test(a_version_that_is_not_spoken),
      cmocka_unit_test(commands_in_the_wrong_state),
      cmocka_unit_test(commands_that_are_not_for_clients),
      cmocka_unit_test(descriptors_too_few_and_too_many),
      cmocka_unit_test(messages_that_are_none),
      cmocka_unit_test(submissions_that_cannot_be),
      cmocka_unit_test(rings_that_lie),
      cmocka_unit_test(a_wakeup_that_blocks),
      cmocka_unit_test(handles_of_others),
      cmocka_unit_test(too_many_sessions),
      cmocka_unit_test(a_second_daemon),
      cmocka_unit_test(nobody_at_the_socket),
      cmocka_unit_test(a_stale_socket),
      cmocka_unit_test(a_file_at_the_sockets_path),
      cmocka_unit_test(options_that_there_are_not),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
