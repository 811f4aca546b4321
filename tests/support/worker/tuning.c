#include "tuning.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS_MOST = 10000000 };

struct tuning tuning;

void tuning_plant(const struct variant_family *one, const struct variant_family *other) {
  static const struct variant_family *families[5];
  families[0] = cpu_backend.families[0];
  families[1] = cpu_backend.families[1];
  families[2] = one;
  families[3] = other;
  tuning.ops = cpu_backend;
  tuning.ops.library_variants = NULL; /* unless a test plants one */
  tuning.ops.compiled_variants = NULL;
  tuning.ops.families = families;
}

void tuning_open(void) {
  const struct gemm_weight shape = {.n = TUNING_N, .k = TUNING_K, .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_ROW};
  device_open(&tuning.device, &cpu_backend, 2, 1 << 20);
  oracle_weight_make(&tuning.values, &shape, 3);
  tuning.weight = (struct engine_weight){.shape = shape, .device = device_load(&tuning.device, &tuning.values, 0)};
  tuning.saved = tuning.answered = tuning.unsaved_count = 0;
  tuning.disk_stands = false;
  tuning.last_answer = NULL;
}

void tuning_close(void) {
  tuning_stop();
  cpu_backend.weight_detach(tuning.device.backend, tuning.weight.device);
  oracle_weight_free(&tuning.values);
  device_close(&tuning.device);
  close(tuning.device.slab_fd);
}

static void save(struct engine_message *message) {
  struct tune_save *saved = (struct tune_save *)(void *)((char *)message - offsetof(struct tune_save, message));
  tuning.saved += saved->verb == SAVE_WINNER || saved->verb == SAVE_FORGET;
  tuner_save(saved);
}

void tuning_disk_goes_on(void) {
  for (int i = 0; i < tuning.unsaved_count; i++)
    save(tuning.unsaved[i]);
  tuning.unsaved_count = 0;
  tuning.disk_stands = false;
}

static void notify(void *user, struct engine_message *message) {
  if (message->verb == ENGINE_TUNE_SAVE) {
    if (tuning.disk_stands) {
      assert_true(tuning.unsaved_count < (int)(sizeof tuning.unsaved / sizeof *tuning.unsaved));
      tuning.unsaved[tuning.unsaved_count++] = message;
    } else {
      save(message);
    }
    return;
  }
  tuning.answered++;
  tuning.last_answer = message;
}

struct tuner_options tuning_options(enum tune_mode mode) {
  return (struct tuner_options){.ops = &tuning.ops,
                                .backend = tuning.device.backend,
                                .mode = mode,
                                .burst_ns = 300000,
                                .quiet_ns = UINT64_C(3600000000000),
                                .share = 5,
                                .budget_ns = UINT64_C(60000000000),
                                .arena_bytes = TUNING_ARENA_BYTES,
                                .notify = notify};
}

void tuning_start(const struct tuner_options *options) {
  struct error error;
  assert_int_equal(tuner_open(options, &tuning.tuner, &error), STATUS_OK);
}

void tuning_stop(void) {
  tuner_close(tuning.tuner);
  tuning.tuner = NULL;
}

static bool nobody_waits(void *user) {
  return false;
}

uint64_t tuning_step(uint64_t now_ns) {
  struct error lost = {.status = STATUS_OK};
  uint64_t wait = tuner_step(tuning.tuner, now_ns, nobody_waits, NULL, &lost);
  assert_int_equal(lost.status, STATUS_OK);
  return wait;
}

void tuning_run(void) {
  for (int i = 0; i < STEPS_MOST; i++) {
    if (tuning_step(TUNING_LATE) == UINT64_MAX)
      return;
    sched_yield(); /* others may have to answer first */
  }
  fail_msg("the tuner does not come to an end");
}

const struct variant *tuning_serving(int64_t rows, uint64_t device_ns) {
  static float x[1], y[1];
  struct backend_job job = {
      .weight = tuning.weight.device, .m = rows, .x_type = GEMM_F32, .y_type = GEMM_F32, .x = x, .y = y};
  struct book_entry *entry = tuner_launch(tuning.tuner, 0, &tuning.weight, &job, rows);
  assert_non_null(entry);
  tuner_finished(tuning.tuner, entry, device_ns);
  return job.variant;
}

struct tune_shape tuning_listed(void) {
  struct tune_request list = {.verb = TUNE_LIST};
  struct engine_message message = {.verb = ENGINE_TUNE, .tune = &list};
  tuner_request(tuning.tuner, &message);
  assert_true(list.count > 0);
  return list.page[0];
}
