/* The weights of the real daemon: what was loaded, under which names, and whose content is stored how long. */
#include "client/gemmclient.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/product.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/oracle.h"
#include "tests/support/system/hold.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void weights_are_what_the_file_says(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  for (int i = 0; i < layers.count; i++) {
    gemmd_weight_info info;
    expect_ok(session, gemmd_weight_stat(session, layers_name(i), &info));
    assert_string_equal(info.name, layers_name(i));
    assert_true(info.n == layers_shapes[i].n && info.k == layers_shapes[i].k);
    assert_int_equal(info.format, layers_shapes[i].format);
    assert_int_equal(info.scale, layers_shapes[i].scale);
    assert_int_equal(info.references, 1);
    assert_int_equal(info.devices, 1);
    assert_int_equal(info.owner, getuid());
    assert_true(info.bytes * 8 >= (uint64_t)(layers_shapes[i].n * layers_shapes[i].k) *
                                      (uint64_t)gemm_format_facts(layers_shapes[i].format)->bits);
  }
  gemmd_disconnect(session);
}

static bool append_name(void *user, const gemmd_weight_info *info) {
  strcat(user, info->name);
  strcat(user, " ");
  return strlen(user) < 200;
}

static void weights_are_listed_in_order(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  char names[512] = "";
  expect_ok(session, gemmd_weight_list(session, "layer.?", append_name, names));
  assert_string_equal(names, "layer.0 layer.1 layer.2 layer.3 layer.4 layer.5 layer.6 layer.7 layer.8 layer.9 ");
  names[0] = '\0';
  expect_ok(session, gemmd_weight_list(session, "*.[57]", append_name, names));
  assert_string_equal(names, "layer.5 layer.7 ");
  gemmd_disconnect(session);
}

static void weights_and_bytes(gemmd_session *session, uint32_t *count, uint64_t *bytes) {
  gemmd_daemon_info info;
  expect_ok(session, gemmd_daemon_status(session, &info));
  *count = info.weights;
  *bytes = info.weight_bytes;
}

static void equal_content_is_stored_once(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_weight_info info;
  uint32_t count, count_after;
  uint64_t bytes, bytes_after, freed = 99;
  weights_and_bytes(session, &count, &bytes);
  gemmd_load request = {.name = "again", .tensor = layers_name(3), .format = GEMMD_FORMAT_FP8, .device = -1};
  expect_ok(session, gemmd_weight_load_file(session, layers_model(), &request, &info));
  assert_true(info.shared);
  assert_int_equal(info.references, 2);
  weights_and_bytes(session, &count_after, &bytes_after);
  assert_int_equal(count_after, count);
  assert_true(bytes_after == bytes);
  expect_ok(session, gemmd_weight_unload(session, "again", &freed));
  assert_true(freed == 0);
  expect_ok(session, gemmd_weight_stat(session, layers_name(3), &info));
  assert_int_equal(info.references, 1);
  gemmd_disconnect(session);
}

/* Real numbers whose absmax quantization is exact become the stored codes again, bit for bit, hence the same content.
 */
static void quantized_while_loading(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_weight *handle;
  layers_load(session, "real", "quantized", GEMMD_FORMAT_INT8);
  expect_ok(session, gemmd_weight_open(session, "quantized", &handle));
  assert_int_equal(gemmd_weight_get_info(handle)->scale, GEMMD_SCALE_ROW);
  assert_int_equal(gemmd_weight_get_info(handle)->format, GEMMD_FORMAT_INT8);
  /* Quantized once more, the values differ from the stored ones by half a step at most: an independent bound. */
  enum { M = 4 };
  const struct oracle_weight *weight = &layers.weights[2];
  struct product_request request = {.weight = weight, .m = M, .x_type = GEMM_F32, .y_type = GEMM_F32, .seed = 5};
  struct product product;
  assert_true(product_make(&product, session, &request));
  float *x = (float *)product.product.x;
  memset(x, 0, M * 200 * sizeof *x);
  for (int row = 0; row < M; row++)
    x[row * 200 + row * 3] = 1; /* y is then a column of W, exactly as stored */
  expect_ok(session, gemmd_matmul(handle, &product.product));
  for (int row = 0; row < M; row++)
    for (int n = 0; n < 96; n++) {
      double largest = 0, stored = weight->values[n * 200 + row * 3];
      for (int k = 0; k < 200; k++)
        largest = fmax(largest, fabs(weight->values[n * 200 + k]));
      assert_true(fabs((double)((float *)product.product.y)[row * 96 + n] - stored) <= largest / 127 / 2 * 1.0001);
    }
  product_free(&product, session);
  gemmd_weight_close(handle);
  expect_ok(session, gemmd_weight_unload(session, "quantized", NULL));
  gemmd_disconnect(session);
}

static void an_open_weight_outlives_its_name(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  gemmd_weight *old;
  uint64_t freed = 1;
  uint32_t count, count_after;
  uint64_t bytes, bytes_after;
  layers_load(session, "real", "moving", GEMMD_FORMAT_F16);
  weights_and_bytes(session, &count, &bytes);
  expect_ok(session, gemmd_weight_open(session, "moving", &old));
  gemmd_load other = {
      .name = "moving", .tensor = layers_name(8), .format = GEMMD_FORMAT_F16, .device = -1, .replace = true};
  expect_ok(session, gemmd_weight_load_file(session, layers_model(), &other, NULL));
  assert_true(gemmd_weight_get_info(old)->n == 96);
  struct product product;
  struct product_request request = {
      .weight = &layers.weights[2], .m = 2, .x_type = GEMM_F16, .y_type = GEMM_F32, .seed = 1};
  assert_true(product_make(&product, session, &request));
  expect_ok(session, gemmd_matmul(old, &product.product)); /* still 96 x 200 */
  product_free(&product, session);
  gemmd_weight_close(old);
  weights_and_bytes(session, &count_after, &bytes_after);
  assert_int_equal(count_after, count - 1); /* the old content went with its last handle */
  assert_true(bytes_after < bytes);
  expect_ok(session, gemmd_weight_unload(session, "moving", &freed));
  assert_true(freed == 0); /* layer.8 has it */
  gemmd_disconnect(session);
}

/* Its answer comes when nobody waits for it any more; the handle goes back by itself. */
static void a_weight_that_is_not_opened_in_time(void **state) {
  gemmd_session *session = daemon_join(&layers.daemon, &(gemmd_options){.timeout_ms = 500});
  gemmd_session *patient = daemon_join(&layers.daemon, NULL);
  gemmd_weight *handle;
  uint64_t freed = 0, bytes, bytes_after;
  uint32_t count, count_after;
  weights_and_bytes(patient, &count, &bytes);
  layers_load(patient, "real", "late", GEMMD_FORMAT_F16);
  pid_t worker = (pid_t)device_info(patient).pid;
  hold_process(worker);
  int status = gemmd_weight_open(session, "late", &handle);
  assert_int_equal(kill(worker, SIGCONT), 0);
  assert_int_equal(status, GEMMD_TIMEOUT);
  assert_null(handle);
  /* The first answer comes behind the late one, the second behind that of the handle given back. */
  for (int answers = 0; answers < 2; answers += status == GEMMD_OK)
    if ((status = gemmd_ping(session, NULL)) != GEMMD_TIMEOUT)
      expect_ok(session, status);
  expect_ok(patient, gemmd_weight_unload(patient, "late", &freed));
  assert_true(freed > 0);
  weights_and_bytes(patient, &count_after, &bytes_after);
  assert_int_equal(count_after, count);
  assert_true(bytes_after == bytes);
  expect_ok(session, gemmd_weight_open(session, layers_name(2), &handle));
  gemmd_weight_close(handle);
  gemmd_disconnect(patient);
  gemmd_disconnect(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(weights_are_what_the_file_says, layers_as_before),
      cmocka_unit_test_teardown(weights_are_listed_in_order, layers_as_before),
      cmocka_unit_test_teardown(equal_content_is_stored_once, layers_as_before),
      cmocka_unit_test_teardown(quantized_while_loading, layers_as_before),
      cmocka_unit_test_teardown(an_open_weight_outlives_its_name, layers_as_before),
      cmocka_unit_test_teardown(a_weight_that_is_not_opened_in_time, layers_as_before),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
