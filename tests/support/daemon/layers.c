#include "layers.h"

#include "status.h"
#include "tests/support/reference/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* Sizes on no boundary, and on some. */
const struct gemm_weight layers_shapes[LAYERS] = {
    {1, 1, GEMM_FORMAT_INT8, GEMM_SCALE_ONE, 0, 0},
    {33, 77, GEMM_FORMAT_INT8, GEMM_SCALE_ONE, 0, 0},
    {96, 200, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0},
    {64, 130, GEMM_FORMAT_FP8, GEMM_SCALE_ROW, 0, 0},
    {40, 48, GEMM_FORMAT_FP8, GEMM_SCALE_ONE, 0, 0},
    {200, 300, GEMM_FORMAT_FP8, GEMM_SCALE_BLOCK, 0, 0},
    {48, 260, GEMM_FORMAT_INT2, GEMM_SCALE_GROUP, 0, 0},
    {17, 132, GEMM_FORMAT_INT2, GEMM_SCALE_ROW, 0, 0},
    {31, 65, GEMM_FORMAT_F16, GEMM_SCALE_NONE, 0, 0},
    {65, 31, GEMM_FORMAT_BF16, GEMM_SCALE_NONE, 0, 0},
    {48, 200, GEMM_FORMAT_INT4, GEMM_SCALE_GROUP32_BF16_ZEROS, 0, 0},
    {33, 260, GEMM_FORMAT_INT4A8, GEMM_SCALE_GROUP, 0, 0},
    {17, 132, GEMM_FORMAT_MXFP4, GEMM_SCALE_GROUP32, 0, 0},
};
struct layers layers;

const char *layers_name(int index) {
  static char names[4][32];
  static unsigned next;
  char *name = names[next++ % 4];
  snprintf(name, sizeof names[0], "layer.%d", index);
  return name;
}

const char *layers_model(void) {
  return daemon_path(&layers.daemon, "model.safetensors");
}

void layers_load(gemmd_session *session, const char *tensor, const char *name, enum gemmd_format format) {
  const gemmd_load request = {.name = name, .tensor = tensor, .format = format, .device = -1};
  expect_ok(session, gemmd_weight_load_file(session, layers_model(), &request, NULL));
}

/* False where the backend has no kernels for its format. */
static bool load(gemmd_session *session, int index) {
  const char *name = layers_name(index);
  const struct gemm_weight *shape = &layers_shapes[index];
  const gemmd_load request = {.name = name,
                              .tensor = name,
                              .format = (enum gemmd_format)shape->format,
                              .scale = (enum gemmd_scale)shape->scale,
                              .device = -1};
  int status = gemmd_weight_load_file(session, layers_model(), &request, NULL);
  if (status == GEMMD_UNSUPPORTED && shape->format >= GEMM_FORMAT_INT4)
    return false;
  expect_ok(session, status);
  return true;
}

int layers_start(void **state) {
  static struct checkpoint checkpoint;
  daemon_make(&layers.daemon, "");
  for (int i = 0; i < LAYERS; i++) {
    oracle_weight_make(&layers.weights[i], &layers_shapes[i], (uint64_t)i + 1);
    checkpoint_add_weight(&checkpoint, layers_name(i), &layers.weights[i]);
  }
  checkpoint_add_values(&checkpoint, "real", &layers.weights[2]);
  checkpoint_write(&checkpoint, layers_model());
  daemon_start(&layers.daemon);
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  for (layers.count = 0; layers.count < LAYERS; layers.count++)
    if (!load(session, layers.count))
      break;
  gemmd_disconnect(session);
  return 0;
}

int layers_as_before(void **state) {
  gemmd_daemon_info info;
  gemmd_session *session = daemon_join(&layers.daemon, NULL);
  expect_ok(session, gemmd_daemon_status(session, &info));
  assert_int_equal(info.names, layers.count);
  assert_int_equal(info.weights, layers.count);
  assert_int_equal(info.device[0].restarts, 0);
  gemmd_disconnect(session);
  return 0;
}

int layers_stop(void **state) {
  daemon_end(&layers.daemon);
  for (int i = 0; i < LAYERS; i++)
    oracle_weight_free(&layers.weights[i]);
  return 0;
}
