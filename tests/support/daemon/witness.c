#include "witness.h"

#include "product.h"
#include "tests/support/reference/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const struct gemm_weight witness_int8_shape = {48, 100, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
static const struct gemm_weight f16_shape = {16, 64, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0};
struct witness witness;

void witness_ok(gemmd_session *session, int status) {
  if (status != GEMMD_OK)
    fail_msg("%s: %s", gemmd_status_name(status), gemmd_error(session));
}

void witness_status(gemmd_session *session, int status, int expected, const char *text) {
  if (status != expected || strstr(gemmd_error(session), text) == NULL)
    fail_msg("%s: %s; in place of %s: ... %s", gemmd_status_name(status), gemmd_error(session),
             gemmd_status_name(expected), text);
}

const char *witness_model(void) {
  return daemon_path(&witness.daemon, "model.safetensors");
}

gemmd_load witness_load(const char *tensor, const char *name, enum gemmd_format format) {
  return (gemmd_load){.name = name, .tensor = tensor, .format = format, .device = -1};
}

/* After each refusal the rest goes on. */
void witness_undisturbed(void) {
  static uint64_t seed;
  gemmd_daemon_info info;
  struct product_request request = {
      .weight = &witness.int8_values, .m = 3, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = ++seed};
  witness_ok(witness.session, gemmd_ping(witness.session, NULL));
  assert_true(product_run(witness.session, witness.int8, &request));
  witness_ok(witness.session, gemmd_daemon_status(witness.session, &info));
  assert_int_equal(info.pid, witness.daemon.pid);
  assert_int_equal(info.device[0].restarts, 0);
  assert_int_equal(info.names, 2);
  assert_int_equal(info.weights, 2);
}

int witness_start(void **state) {
  static struct checkpoint checkpoint;
  daemon_make(&witness.daemon, "sessions_max = 8\narena_bytes_max = 67108864\n");
  oracle_weight_make(&witness.int8_values, &witness_int8_shape, 1);
  oracle_weight_make(&witness.f16_values, &f16_shape, 2);
  checkpoint_add_weight(&checkpoint, "int8", &witness.int8_values);
  checkpoint_add_weight(&checkpoint, "f16", &witness.f16_values);
  checkpoint_write(&checkpoint, witness_model());
  daemon_start(&witness.daemon);
  gemmd_options options = {.entries = 2};
  witness_ok(witness.session, gemmd_connect(&witness.session, witness.daemon.socket, &options));
  gemmd_load loads[] = {witness_load("int8", "int8", GEMMD_FORMAT_INT8), witness_load("f16", "f16", GEMMD_FORMAT_F16)};
  for (size_t i = 0; i < COUNT(loads); i++)
    witness_ok(witness.session, gemmd_weight_load_file(witness.session, witness_model(), &loads[i], NULL));
  witness_ok(witness.session, gemmd_weight_open(witness.session, "int8", &witness.int8));
  witness_ok(witness.session, gemmd_weight_open(witness.session, "f16", &witness.f16));
  return 0;
}

int witness_stop(void **state) {
  gemmd_disconnect(witness.session);
  daemon_end(&witness.daemon);
  oracle_weight_free(&witness.int8_values);
  oracle_weight_free(&witness.f16_values);
  return 0;
}
