/* Bad input to the real daemon through the library, and daemons that must not start: each gets a status and a sentence
 * with the field and the value, and nothing is lost. */
#include "client/gemmclient.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/witness.h"
#include "tests/support/reference/checkpoint.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- products, through the library */

static void products_that_cannot_be(void **state) {
  char *memory = gemmd_alloc(witness.session, 65536);
  static float outside[4800];
  assert_non_null(memory);
  const gemmd_product good = {.m = 2, .x = memory, .x_type = GEMMD_F32, .y = memory + 32768, .y_type = GEMMD_F32};
  struct {
    gemmd_weight *weight;
    gemmd_product product;
    int status;
    const char *text;
  } cases[] = {
      {witness.int8, good, GEMMD_INVALID, "M must be 1..16777216, got 0"},
      {witness.int8, good, GEMMD_UNSUPPORTED, "x type e4m3 (5) is not supported with this weight"},
      {witness.int8, good, GEMMD_UNSUPPORTED, "y type s32 (6) is not supported with this weight"},
      {witness.f16, good, GEMMD_UNSUPPORTED, "x type f32 (1) is not supported with this weight"},
      {witness.int8, good, GEMMD_INVALID, "x must lie in the session's arena"},
      {witness.int8, good, GEMMD_INVALID, "y must not be NULL"},
      {witness.int8, good, GEMMD_INVALID, "must be a multiple of 16, got"},
      {witness.int8, good, GEMMD_INVALID, "y overlaps x, bias or x scale"},
      {witness.int8, good, GEMMD_INVALID, "x stride must be 400..9223372036854775807, got 399"},
      {witness.int8, good, GEMMD_INVALID, "bytes must be 0.."},
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
    witness_status(witness.session, gemmd_matmul(cases[i].weight, &cases[i].product), cases[i].status, cases[i].text);
    witness_status(witness.session, gemmd_submit(cases[i].weight, &cases[i].product, &ticket), cases[i].status,
                   cases[i].text);
    assert_non_null(strstr(gemmd_error(witness.session),
                           cases[i].weight == witness.f16 ? "(weight \"f16\")" : "(weight \"int8\")"));
    assert_int_equal(ticket, 0);
  }
  witness_status(witness.session, gemmd_wait(witness.session, 12345, 0, NULL), GEMMD_INVALID, "12345");
  gemmd_free(witness.session, memory);
  witness_undisturbed();
}

static void no_free_slot(void **state) {
  struct product products[2], third;
  struct product_request request = {
      .weight = &witness.int8_values, .m = 4, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 1};
  uint64_t ticket;
  assert_true(product_make(&third, witness.session, &request));
  for (int i = 0; i < 2; i++) {
    assert_true(product_make(&products[i], witness.session, &request));
    witness_ok(witness.session, gemmd_submit(witness.int8, &products[i].product, &products[i].ticket));
  }
  witness_status(witness.session, gemmd_submit(witness.int8, &third.product, &ticket), GEMMD_BUSY, "2");
  for (int i = 0; i < 2; i++) {
    witness_ok(witness.session, gemmd_wait(witness.session, products[i].ticket, -1, NULL));
    assert_true(product_right(&products[i]));
    product_free(&products[i], witness.session);
  }
  witness_ok(witness.session, gemmd_matmul(witness.int8, &third.product));
  assert_true(product_right(&third));
  product_free(&third, witness.session);
  witness_undisturbed();
}

static void no_room_in_the_arena(void **state) {
  assert_null(gemmd_alloc(witness.session, (size_t)1 << 40));
  assert_true(strlen(gemmd_error(witness.session)) > 0);
  assert_null(gemmd_alloc(witness.session, SIZE_MAX));
  gemmd_options options = {.arena_bytes = (size_t)67108865};
  gemmd_session *session = NULL;
  witness_status(session, gemmd_connect(&session, witness.daemon.socket, &options) == GEMMD_TOO_LARGE ? GEMMD_OK : -1,
                 GEMMD_OK, "");
  assert_non_null(strstr(gemmd_error(session), "67108865"));
  gemmd_disconnect(session);
  witness_undisturbed();
}

/* ---- names and files */

static void names_that_nothing_stands_for(void **state) {
  gemmd_weight *none;
  gemmd_weight_info info;
  char long_name[300];
  memset(long_name, 'n', sizeof long_name - 1);
  long_name[sizeof long_name - 1] = '\0';
  witness_status(witness.session, gemmd_weight_open(witness.session, "nobody", &none), GEMMD_NOT_FOUND, "nobody");
  witness_status(witness.session, gemmd_weight_stat(witness.session, "nobody", &info), GEMMD_NOT_FOUND, "nobody");
  witness_status(witness.session, gemmd_weight_unload(witness.session, "nobody", NULL), GEMMD_NOT_FOUND, "nobody");
  witness_status(witness.session, gemmd_weight_stat(witness.session, long_name, &info), GEMMD_INVALID, "255");
  gemmd_load load = witness_load("int8", "", GEMMD_FORMAT_INT8);
  witness_status(witness.session, gemmd_weight_load_file(witness.session, witness_model(), &load, NULL), GEMMD_INVALID,
                 "name");
  load = witness_load("int8", long_name, GEMMD_FORMAT_INT8);
  witness_status(witness.session, gemmd_weight_load_file(witness.session, witness_model(), &load, NULL), GEMMD_INVALID,
                 "255");
  load = witness_load("int8", "bad\xff", GEMMD_FORMAT_INT8);
  witness_status(witness.session, gemmd_weight_load_file(witness.session, witness_model(), &load, NULL), GEMMD_INVALID,
                 "UTF-8");
  load = witness_load("missing", "new", GEMMD_FORMAT_INT8);
  witness_status(witness.session, gemmd_weight_load_file(witness.session, witness_model(), &load, NULL),
                 GEMMD_NOT_FOUND, "missing");
  load = witness_load("int8", "new", GEMMD_FORMAT_INT8);
  witness_status(witness.session, gemmd_weight_load_file(witness.session, "/nonexistent", &load, NULL), GEMMD_NOT_FOUND,
                 "cannot open /nonexistent: No such file");
  witness_undisturbed();
}

/* As many as a user may have in a window, or in two where this takes long: a log that anybody can fill is none. */
static void refusals_do_not_fill_the_log(void **state) {
  enum { REFUSALS = 200, TWO_WINDOWS = 100 };
  for (int i = 0; i < REFUSALS; i++)
    witness_status(witness.session, gemmd_weight_unload(witness.session, "nobody", NULL), GEMMD_NOT_FOUND, "nobody");
  int lines = daemon_log_count(&witness.daemon, "request=weight_unload reason=NOT_FOUND");
  assert_in_range(lines, 1, TWO_WINDOWS);
}

static void a_name_for_other_content(void **state) {
  gemmd_weight_info info;
  gemmd_load load = witness_load("f16", "int8", GEMMD_FORMAT_F16);
  witness_status(witness.session, gemmd_weight_load_file(witness.session, witness_model(), &load, NULL), GEMMD_EXISTS,
                 "\"int8\"");
  witness_ok(witness.session, gemmd_weight_stat(witness.session, "int8", &info));
  assert_int_equal(info.format, GEMMD_FORMAT_INT8);
  load = witness_load("int8", "int8", GEMMD_FORMAT_INT8);
  witness_ok(witness.session,
             gemmd_weight_load_file(witness.session, witness_model(), &load, &info)); /* equal content is no conflict */
  assert_int_equal(info.references, 1);
  load = witness_load("f16", "int8", GEMMD_FORMAT_F16);
  load.replace = true;
  witness_ok(witness.session, gemmd_weight_load_file(witness.session, witness_model(), &load, &info));
  assert_int_equal(info.format, GEMMD_FORMAT_F16);
  load = witness_load("int8", "int8", GEMMD_FORMAT_INT8);
  load.replace = true;
  witness_ok(witness.session, gemmd_weight_load_file(witness.session, witness_model(), &load, NULL));
  witness_undisturbed();
}

static void forms_that_a_tensor_does_not_take(void **state) {
  struct {
    gemmd_load load;
    int status;
    const char *text;
  } cases[] = {
      {witness_load("int8", "new", (enum gemmd_format)0), GEMMD_INVALID, "format must be 1.."},
      {witness_load("int8", "new", (enum gemmd_format)31), GEMMD_INVALID, "format must be 1.."},
      {witness_load("int8", "new", GEMMD_FORMAT_FP8), GEMMD_UNSUPPORTED, "int8"},
      {witness_load("f16", "new", GEMMD_FORMAT_FP8), GEMMD_INVALID, "scale mode group does not go with format fp8"},
      {witness_load("f16", "new", GEMMD_FORMAT_INT8), GEMMD_INVALID, "method ternary does not go with format int8"},
      {witness_load("f16", "new", GEMMD_FORMAT_INT8), GEMMD_INVALID, "placement must be 0..2, got 9"},
      {witness_load("f16", "new", GEMMD_FORMAT_INT8), GEMMD_INVALID, "device"},
      {witness_load("int8_scale", "new", GEMMD_FORMAT_INT8), GEMMD_UNSUPPORTED, "dimension"},
  };
  cases[3].load.scale = GEMMD_SCALE_GROUP;
  cases[4].load.method = GEMMD_METHOD_TERNARY;
  cases[5].load.placement = (enum gemmd_placement)9;
  cases[6].load.device = 64;
  for (size_t i = 0; i < COUNT(cases); i++)
    witness_status(witness.session, gemmd_weight_load_file(witness.session, witness_model(), &cases[i].load, NULL),
                   cases[i].status, cases[i].text);
  witness_undisturbed();
}

static void descriptors_that_are_no_file_to_read(void **state) {
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  int fds[] = {pipes[0], open("/tmp", O_RDONLY | O_DIRECTORY), open("/dev/zero", O_RDONLY),
               open(witness_model(), O_WRONLY), open(witness_model(), O_PATH)};
  gemmd_load load = witness_load("int8", "new", GEMMD_FORMAT_INT8);
  for (size_t i = 0; i < COUNT(fds); i++) {
    assert_true(fds[i] >= 0);
    witness_status(witness.session, gemmd_weight_load(witness.session, fds[i], &load, NULL), GEMMD_BAD_DESCRIPTOR, "");
    close(fds[i]);
  }
  close(pipes[1]);
  int direct = open(witness_model(), O_RDONLY | O_DIRECT); /* a tmpfs may know no such thing */
  if (direct >= 0)
    witness_status(witness.session, gemmd_weight_load(witness.session, direct, &load, NULL), GEMMD_BAD_DESCRIPTOR,
                   "open it without");
  close(direct);
  assert_int_not_equal(gemmd_weight_load(witness.session, -1, &load, NULL), GEMMD_OK);
  witness_undisturbed();
}

/* Loads from a file that begins with `length`, has `json` behind it, and is `bytes` long in all. */
static int load_lie(uint64_t length, const char *json, off_t bytes) {
  int fd = memfd_create("lie", MFD_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, &length, sizeof length), sizeof length);
  assert_int_equal(write(fd, json, strlen(json)), (ssize_t)strlen(json));
  assert_int_equal(ftruncate(fd, bytes), 0);
  gemmd_load load = witness_load("t", "lie", GEMMD_FORMAT_F16);
  int status = gemmd_weight_load(witness.session, fd, &load, NULL);
  close(fd);
  return status;
}

static void files_that_lie(void **state) {
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
    witness_status(witness.session,
                   load_lie((uint64_t)((int64_t)length + (cases[i].length == INT64_MAX ? 0 : cases[i].length)) |
                                (cases[i].length == INT64_MAX ? (uint64_t)1 << 63 : 0),
                            cases[i].json, (off_t)(8 + length) + cases[i].data),
                   GEMMD_BAD_FILE, cases[i].text);
  }
  witness_status(witness.session, load_lie(0, "", 10), GEMMD_BAD_FILE, "byte 8");
  witness_status(witness.session, load_lie(0, "", 9), GEMMD_BAD_FILE,
                 "file has 9 bytes; a safetensors file has at least 10");
  witness_status(witness.session, load_lie(0, "", 3), GEMMD_BAD_FILE, "3 bytes");
  witness_undisturbed();
}

static void numbers_that_are_none(void **state) {
  static struct checkpoint checkpoint;
  float values[2][8] = {{1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, NAN, 5, 6, 7, 8}};
  const char *path = daemon_path(&witness.daemon, "nan.safetensors");
  checkpoint_add(&checkpoint, "t", "F32", 2, 8, values, sizeof values);
  checkpoint_write(&checkpoint, path);
  gemmd_load load = witness_load("t", "new", GEMMD_FORMAT_INT8);
  witness_status(witness.session, gemmd_weight_load_file(witness.session, path, &load, NULL), GEMMD_BAD_FILE,
                 "row 1, column 3");
  witness_undisturbed();
}

/* 8 TiB of zeros: a file of one page. */
static void no_room_for_a_weight(void **state) {
  static const char json[] =
      "{\"t\":{\"dtype\":\"F16\",\"shape\":[2097152,2097152],\"data_offsets\":[0,8796093022208]}}";
  witness_status(witness.session, load_lie(sizeof json - 1, json, (off_t)(8 + sizeof json - 1) + 8796093022208),
                 GEMMD_NOMEM, "");
  witness_undisturbed();
}

/* ---- who is served at all */

static void too_many_sessions(void **state) {
  gemmd_session *sessions[8], *extra = NULL;
  for (int i = 0; i < 7; i++)
    witness_ok(sessions[i], gemmd_connect(&sessions[i], witness.daemon.socket, NULL));
  witness_status(extra, gemmd_connect(&extra, witness.daemon.socket, NULL) == GEMMD_BUSY ? GEMMD_OK : -1, GEMMD_OK, "");
  assert_non_null(strstr(gemmd_error(extra), "8 sessions"));
  gemmd_disconnect(extra);
  for (int i = 0; i < 7; i++)
    gemmd_disconnect(sessions[i]);
  witness_undisturbed();
}

static void a_second_daemon(void **state) {
  assert_int_equal(daemon_fail_to_start(&witness.daemon), 1);
  assert_int_equal(daemon_log_count(&witness.daemon, "another gemmd serves"), 1);
  witness_undisturbed();
}

static void nobody_at_the_socket(void **state) {
  gemmd_session *session = NULL;
  int status = gemmd_connect(&session, daemon_path(&witness.daemon, "nothing"), NULL);
  witness_status(session, status, GEMMD_DISCONNECTED, "nothing");
  gemmd_disconnect(session);
}

/* Its own daemon: killed, found dead by its clients, and started again over the socket that it left. */
static void a_stale_socket(void **state) {
  struct daemon daemon;
  struct stat stat_of;
  gemmd_session *session = NULL, *next = NULL;
  gemmd_weight *own;
  daemon_make(&daemon, "");
  daemon_start(&daemon);
  const gemmd_options options = {.reconnect_ms = UINT_MAX};
  witness_ok(session, gemmd_connect(&session, daemon.socket, &options));
  gemmd_load load = witness_load("int8", "int8", GEMMD_FORMAT_INT8);
  witness_ok(session, gemmd_weight_load_file(session, witness_model(), &load, NULL));
  witness_ok(session, gemmd_weight_open(session, "int8", &own));
  daemon_kill(&daemon);
  assert_int_equal(gemmd_ping(session, NULL), GEMMD_DISCONNECTED);
  struct product product;
  struct product_request request = {
      .weight = &witness.int8_values, .m = 2, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 1};
  assert_true(product_make(&product, session, &request));
  assert_int_equal(gemmd_matmul(own, &product.product), GEMMD_DISCONNECTED);
  product_free(&product, session);
  gemmd_disconnect(session);

  assert_int_equal(lstat(daemon.socket, &stat_of), 0);
  assert_true(S_ISSOCK(stat_of.st_mode));
  assert_int_equal(gemmd_connect(&next, daemon.socket, NULL), GEMMD_DISCONNECTED);
  gemmd_disconnect(next);
  daemon_start(&daemon);
  witness_ok(next, gemmd_connect(&next, daemon.socket, NULL));
  witness_ok(next, gemmd_ping(next, NULL));
  gemmd_disconnect(next);
  daemon_stop(&daemon);
  assert_int_equal(lstat(daemon.socket, &stat_of), -1);
  daemon_remove(&daemon);
}

/* As the service manager's, for which no gemmd holds a lock. */
static void a_socket_that_others_serve(void **state) {
  static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    struct daemon daemon;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    daemon_make(&daemon, "");
    snprintf(address.sun_path, sizeof address.sun_path, "%s", daemon.socket);
    int served = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0), client = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(served, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(served, 8), 0);
    assert_int_equal(daemon_fail_to_start(&daemon), 1);
    assert_int_equal(daemon_log_count(&daemon, "listens at"), 1);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    close(client);
    close(served);
    daemon_start(&daemon); /* now it was left behind */
    daemon_end(&daemon);
  }
}

/* Something else at the path is not removed. */
static void a_file_at_the_sockets_path(void **state) {
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
      cmocka_unit_test(refusals_do_not_fill_the_log),
      cmocka_unit_test(a_name_for_other_content),
      cmocka_unit_test(forms_that_a_tensor_does_not_take),
      cmocka_unit_test(descriptors_that_are_no_file_to_read),
      cmocka_unit_test(files_that_lie),
      cmocka_unit_test(numbers_that_are_none),
      cmocka_unit_test(no_room_for_a_weight),
      cmocka_unit_test(too_many_sessions),
      cmocka_unit_test(a_second_daemon),
      cmocka_unit_test(nobody_at_the_socket),
      cmocka_unit_test(a_stale_socket),
      cmocka_unit_test(a_socket_that_others_serve),
      cmocka_unit_test(a_file_at_the_sockets_path),
      cmocka_unit_test(options_that_there_are_not),
  };
  return cmocka_run_group_tests(tests, witness_start, witness_stop);
}
