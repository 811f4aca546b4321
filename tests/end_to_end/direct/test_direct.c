/* Engines: processes that borrow weights from a real gemmd and compute with them themselves, on a GPU on streams and in
 * graphs of their own. */
#include "client/gemmclient_direct.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/daemon/engine.h"
#include "tests/support/daemon/layers.h"
#include "tests/support/daemon/status.h"
#include "tests/support/reference/plan.h"
#include "tests/support/system/nap.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

enum { ROWS_MOST = 64, LANES = 2, TYPES_END = 7 };

/* ---- products */

static bool every_type(const struct engine *engine, gemmd_direct_weight *weight, int layer) {
  static const int64_t ms[] = {1, 7, ROWS_MOST};
  enum gemm_format format = layers_shapes[layer].format;
  for (int i = 0; i < TYPES_END * TYPES_END; i++) {
    enum gemm_type x_type = (enum gemm_type)(i / TYPES_END), y_type = (enum gemm_type)(i % TYPES_END);
    if (!gemm_takes_x(format, x_type) || !gemm_takes_y(format, x_type, y_type))
      continue;
    for (int j = 0; j < COUNT(ms); j++)
      if (!engine_product_check(engine, weight, &layers.weights[layer], layer % LANES, ms[j], x_type, y_type))
        return false;
  }
  return true;
}

static int borrow_all(int index, void *user) {
  struct engine engine;
  gemmd_direct_weight *weights[LAYERS];
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  for (int i = 0; i < layers.count; i++) {
    EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(i), &weights[i])));
    EXPECT(strcmp(gemmd_direct_get_info(weights[i])->name, layers_name(i)) == 0);
    EXPECT(gemmd_direct_get_info(weights[i])->n == layers_shapes[i].n);
    EXPECT(gemmd_direct_get_info(weights[i])->k == layers_shapes[i].k);
    EXPECT(every_type(&engine, weights[i], i));
  }
  /* one borrowed twice is two */
  gemmd_direct_weight *again;
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &again)));
  for (int i = 0; i < layers.count; i++)
    while (gemmd_direct_return(weights[i]) == GEMMD_BUSY)
      nap_shortly(); /* until the driver has let go of the graphs */
  EXPECT(engine_product_check(&engine, again, &layers.weights[2], 0, 3, GEMM_F32, GEMM_F32));
  engine_close(&engine);
  return 0;
}

static void test_products(void **state) {
  clients_run(2, borrow_all, NULL);
}

/* The same kernels: a CPU's give the same bits whoever calls them. */
static int compare_bits(int index, void *user) {
  struct engine engine;
  gemmd_direct_weight *weight;
  gemmd_weight *served;
  struct engine_product product;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  if (!engine.gpu) {
    EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
    EXPECT(gemmd_weight_open(engine.session, layers_name(2), &served) == GEMMD_OK);
    EXPECT(engine_product_make(&engine, &product, weight, &layers.weights[2], 9, GEMM_F16, GEMM_F32, 6));
    EXPECT(engine_product_run(&engine, &product));
    void *x = gemmd_alloc(engine.session, 9 * 200 * 2), *y = gemmd_alloc(engine.session, product.y_bytes);
    EXPECT(x != NULL && y != NULL);
    memcpy(x, product.x, 9 * 200 * 2);
    gemmd_product asked = {.m = 9, .x = x, .x_type = GEMMD_F16, .y = y, .y_type = GEMMD_F32};
    EXPECT(gemmd_matmul(served, &asked) == GEMMD_OK);
    EXPECT(memcmp(y, product.y, product.y_bytes) == 0);
    engine_product_free(&engine, &product);
  }
  engine_close(&engine);
  return 0;
}

static void test_same_bits(void **state) {
  clients_run(1, compare_bits, NULL);
}

/* ---- kernels by name */

static int name_kernels(int index, void *user) {
  struct engine engine;
  gemmd_direct_weight *weight, *other;
  gemmd_direct_kernel *kernel = NULL;
  struct engine_product product;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(3), &other)));
  EXPECT(engine_report(gemmd_direct_kernel_find(weight, 5, GEMMD_F32, GEMMD_F32, GEMMD_TYPE_NONE, "plain", &kernel)));
  EXPECT(engine_product_make(&engine, &product, weight, &layers.weights[2], 5, GEMM_F32, GEMM_F32, 5));
  product.product.kernel = kernel;
  EXPECT(engine_product_run(&engine, &product));
  product.product.m = 4; /* of another bucket */
  EXPECT(gemmd_direct_matmul(weight, &product.product, engine.stream) == GEMMD_INVALID);
  product.product.m = 5;
  product.product.y_type = GEMMD_F16;
  EXPECT(gemmd_direct_matmul(weight, &product.product, engine.stream) == GEMMD_INVALID);
  product.product.y_type = GEMMD_F32;
  EXPECT(gemmd_direct_matmul(other, &product.product, engine.stream) == GEMMD_INVALID);
  EXPECT(gemmd_direct_kernel_find(weight, 5, GEMMD_F32, GEMMD_F32, GEMMD_TYPE_NONE, "nonsense", &kernel) ==
         GEMMD_NOT_FOUND);
  EXPECT(gemmd_direct_kernel_find(weight, 5, GEMMD_E4M3, GEMMD_F32, GEMMD_TYPE_NONE, "plain", &kernel) ==
         GEMMD_UNSUPPORTED);
  engine_product_free(&engine, &product);
  engine_close(&engine);
  return 0;
}

static void test_kernels(void **state) {
  clients_run(1, name_kernels, NULL);
}

/* ---- what gemmd finds and is told */

static bool is_shape(void *user, const gemmd_tune_shape *shape) {
  bool *found = user;
  *found = *found || strcmp(shape->shape, "int8-row-96x200-f32-f16-none-m48") == 0;
  return !*found;
}

static int follow_tunings(int index, void *user) {
  struct engine engine;
  gemmd_direct_weight *weight;
  struct engine_product product;
  gemmd_tune_report report;
  bool found = false;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  EXPECT(gemmd_direct_generation(engine.direct) == 0);
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
  EXPECT(engine_product_make(&engine, &product, weight, &layers.weights[2], 33, GEMM_F32, GEMM_F16, 5));
  EXPECT(engine_product_run(&engine, &product));
  while (!found) {
    EXPECT(gemmd_tune_list(engine.session, 0, is_shape, &found) == GEMMD_OK);
    nap_shortly();
  }
  uint64_t generation = gemmd_direct_generation(engine.direct);
  const gemmd_tune_request request = {.weight = layers_name(2), .m = 33, .x_type = GEMMD_F32, .y_type = GEMMD_F16};
  EXPECT(gemmd_tune(engine.session, &request, &report) == GEMMD_OK);
  while (gemmd_direct_generation(engine.direct) == generation)
    nap_shortly();
  for (int i = 0; i < 3; i++)
    EXPECT(engine_product_run(&engine, &product));
  engine_product_free(&engine, &product);
  engine_close(&engine);
  return 0;
}

static void test_tunings(void **state) {
  clients_run(1, follow_tunings, NULL);
}

/* ---- plans */

/* bf16 [65, 31], then f16 [31, 65]. */
static int run_plans(int index, void *user) {
  static const int64_t ms[] = {1, 20, ROWS_MOST};
  struct engine engine;
  gemmd_direct_weight *first, *second;
  gemmd_direct_plan *plan;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(9), &first)));
  EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(8), &second)));
  const gemmd_direct_step steps[] = {{.weight = first, .y_type = GEMMD_F16, .activation = GEMMD_SILU},
                                     {.weight = second, .y_type = GEMMD_F32}};
  const struct oracle_step oracle[] = {{.weight = &layers.weights[9], .y_type = GEMM_F16, .activation = GEMM_SILU},
                                       {.weight = &layers.weights[8], .y_type = GEMM_F32}};
  EXPECT(engine_report(gemmd_direct_plan_create(steps, 2, &plan)));
  for (int i = 0; i < COUNT(ms); i++) {
    struct engine_product product;
    struct oracle_x x;
    EXPECT(engine_product_make(&engine, &product, first, &layers.weights[9], ms[i], GEMM_BF16, GEMM_F32, 8));
    oracle_x_make(&x, ms[i], 31, GEMM_BF16, 1, 8);
    struct oracle_answer right = oracle_plan(&x, oracle, 2);
    free(product.reference);
    product.reference = right.y;
    product.gates = right.gates;
    product.plan = plan;
    product.shape.n = 31;
    product.y_bytes = (size_t)(ms[i] * 31) * sizeof(float);
    EXPECT(engine_product_run(&engine, &product));
    EXPECT(!engine.gpu || (engine_product_record(&engine, &product) && engine_product_run(&engine, &product)));
    engine_product_free(&engine, &product);
    oracle_x_free(&x);
  }
  EXPECT(gemmd_direct_return(second) == GEMMD_BUSY);
  EXPECT(strstr(gemmd_direct_error(), "plan") != NULL);
  gemmd_direct_plan_free(plan);
  while (gemmd_direct_return(second) == GEMMD_BUSY)
    nap_shortly();
  /* with another device's, or none; and steps that do not follow */
  const gemmd_direct_step none[] = {{.y_type = GEMMD_F16}}, apart[] = {steps[0], steps[0]};
  EXPECT(gemmd_direct_plan_create(none, 1, &plan) == GEMMD_INVALID);
  EXPECT(gemmd_direct_plan_create(apart, 2, &plan) == GEMMD_INVALID);
  EXPECT(strstr(gemmd_direct_error(), "step 1: K") != NULL);
  EXPECT(gemmd_direct_plan_create(steps, 0, &plan) == GEMMD_INVALID);
  EXPECT(gemmd_direct_plan_create(steps, 17, &plan) == GEMMD_INVALID);
  EXPECT(engine_report(gemmd_direct_plan_create(steps, 1, &plan))); /* goes with the device */
  engine_close(&engine);
  return 0;
}

static void test_plans(void **state) {
  clients_run(1, run_plans, NULL);
}

/* ---- an engine's own threads */

struct lent {
  int calls, parts; /* of the last call */
};

struct lent_part {
  void (*part)(void *task, int part, int parts);
  void *task;
  int parts;
};

static void *lent_run(void *argument) {
  const struct lent_part *part = argument;
  part->part(part->task, 1, part->parts);
  return NULL;
}

/* Two, the caller's and one that lives as long as the product. */
static void lend_thread(void *context, int parts, void (*part)(void *task, int part, int parts), void *task) {
  struct lent *lent = context;
  struct lent_part other = {.part = part, .task = task, .parts = parts};
  pthread_t thread;
  lent->calls++;
  lent->parts = parts;
  if (pthread_create(&thread, NULL, lent_run, &other) != 0)
    abort();
  part(task, 0, parts);
  pthread_join(thread, NULL);
}

static int compute_on_lent(int index, void *user) {
  struct engine engine;
  struct lent lent = {0};
  struct engine_product product;
  gemmd_direct_weight *weight;
  EXPECT(engine_open(&engine, &layers.daemon, LANES, ROWS_MOST));
  if (!engine.gpu) {
    EXPECT(gemmd_direct_close(engine.direct) == GEMMD_OK);
    const gemmd_direct_options options = {.bytes = sizeof options,
                                          .rows_most = ROWS_MOST,
                                          .threads = 2,
                                          .parallel = lend_thread,
                                          .parallel_context = &lent};
    EXPECT(engine_report(gemmd_direct_open(engine.session, &options, &engine.direct)));
    EXPECT(engine_report(gemmd_direct_borrow(engine.direct, layers_name(2), &weight)));
    EXPECT(engine_product_make(&engine, &product, weight, &layers.weights[2], ROWS_MOST, GEMM_F32, GEMM_F32, 5));
    EXPECT(engine_product_run(&engine, &product) && engine_product_run(&engine, &product));
    EXPECT(lent.calls == 2 && lent.parts == 2);
    engine_product_free(&engine, &product);
  }
  engine_close(&engine);
  return 0;
}

static void test_lent_threads(void **state) {
  clients_run(1, compute_on_lent, NULL);
}

/* ---- the example */

static void test_example(void **state) {
  const char *build = getenv("GEMMD_BUILD");
  char program[512];
  int status;
  snprintf(program, sizeof program, "%s/direct-layer", build != NULL ? build : "build");
  pid_t pid = fork();
  if (pid == 0) {
    execl(program, "direct-layer", layers_name(3), layers.daemon.socket, (char *)NULL);
    _exit(127);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products), cmocka_unit_test(test_same_bits), cmocka_unit_test(test_kernels),
      cmocka_unit_test(test_tunings),  cmocka_unit_test(test_plans),     cmocka_unit_test(test_lent_threads),
      cmocka_unit_test(test_example),
  };
  return cmocka_run_group_tests(tests, layers_start, layers_stop);
}
