/* A model of two layers under ggml's scheduler: products by gemmd, what lies between by the CPU; against the CPU alone.
 * Prints a line a check and exits 1 where one failed. Run twice over one gemmd, the second process must find the
 * weights there; the caller looks at the daemon's log for that. */
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { K = 512, N = 768, M = 5, NODES = 64 };

struct model {
  struct ggml_context *context; /* of the weights */
  ggml_backend_buffer_t buffer;
  struct ggml_tensor *up, *down;
};

static float *numbers(unsigned seed, size_t count) {
  float *values = malloc(count * sizeof *values);
  for (size_t i = 0; values != NULL && i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / (1 << 23) - 1.0f;
  }
  return values;
}

/* Random values in the tensor's type. */
static void fill(struct ggml_tensor *tensor, unsigned seed) {
  size_t count = (size_t)ggml_nelements(tensor), bytes = ggml_nbytes(tensor);
  float *values = numbers(seed, count);
  void *encoded = malloc(bytes);
  ggml_quantize_chunk(tensor->type, values, encoded, 0, tensor->ne[1], tensor->ne[0], NULL);
  ggml_backend_tensor_set(tensor, encoded, 0, bytes);
  free(encoded);
  free(values);
}

static void model_make(struct model *model, ggml_backend_t where) {
  struct ggml_init_params params = {.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true};
  model->context = ggml_init(params);
  model->up = ggml_new_tensor_2d(model->context, GGML_TYPE_Q8_0, K, N);
  model->down = ggml_new_tensor_2d(model->context, GGML_TYPE_TQ2_0, N, K);
  ggml_set_name(model->up, "up");
  ggml_set_name(model->down, "down");
  model->buffer = ggml_backend_alloc_ctx_tensors(model->context, where);
  ggml_backend_buffer_set_usage(model->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  fill(model->up, 1);
  fill(model->down, 2);
}

/* down * silu(up * x), computed where the scheduler puts each node. *products: how many products `watched` computed. */
static bool model_run(const struct model *model, ggml_backend_t *backends, int count, ggml_backend_t watched, float *y,
                      int *products) {
  struct ggml_init_params params = {.mem_size = NODES * ggml_tensor_overhead() + ggml_graph_overhead(),
                                    .no_alloc = true};
  struct ggml_context *context = ggml_init(params);
  struct ggml_tensor *x = ggml_new_tensor_2d(context, GGML_TYPE_F32, K, M);
  ggml_set_input(x);
  struct ggml_tensor *out = ggml_mul_mat(context, model->down, ggml_silu(context, ggml_mul_mat(context, model->up, x)));
  struct ggml_cgraph *graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, out);
  ggml_backend_sched_t scheduler = ggml_backend_sched_new(backends, NULL, count, NODES, false, true);
  bool good = ggml_backend_sched_alloc_graph(scheduler, graph);
  if (good) {
    float *values = numbers(3, K * M);
    ggml_backend_tensor_set(x, values, 0, ggml_nbytes(x));
    free(values);
    good = ggml_backend_sched_graph_compute(scheduler, graph) == GGML_STATUS_SUCCESS;
    ggml_backend_tensor_get(out, y, 0, ggml_nbytes(out));
  }
  *products = 0;
  for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
    struct ggml_tensor *node = ggml_graph_node(graph, i);
    *products += node->op == GGML_OP_MUL_MAT && ggml_backend_sched_get_tensor_backend(scheduler, node) == watched;
  }
  ggml_backend_sched_free(scheduler);
  ggml_free(context);
  return good;
}

static double error_of(const float *y, const float *reference) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < K * M; i++) {
    difference += ((double)y[i] - reference[i]) * ((double)y[i] - reference[i]);
    size += (double)reference[i] * reference[i];
  }
  return sqrt(difference / size);
}

static int check(bool good, const char *what, double value) {
  printf("%s: %g: %s\n", what, value, good ? "OK" : "FAIL");
  return !good;
}

int main(void) {
  static float y[K * M], reference[K * M], before[K * M];
  int failures = 0, products = 0, none;
  ggml_backend_load_all();
  ggml_backend_t gemmd = ggml_backend_init_by_name("GEMMD", NULL), cpu = ggml_backend_init_by_name("CPU", NULL);
  if (gemmd == NULL || cpu == NULL)
    return check(false, "backends", 0);
  struct model served, plain;
  model_make(&served, gemmd);
  model_make(&plain, cpu);

  bool good = model_run(&plain, &cpu, 1, cpu, reference, &none) &&
              model_run(&served, (ggml_backend_t[]){gemmd, cpu}, 2, gemmd, y, &products);
  failures += check(good && products == 2, "products by gemmd", products);
  /* Rows and the first weight are rounded to INT8 by a scale a row, ggml's CPU rounds by blocks. */
  failures += check(error_of(y, reference) < 0.02, "error", error_of(y, reference));

  /* A weight that is written to is handed over anew. */
  for (size_t i = 0; i < K * M; i++)
    before[i] = y[i];
  fill(served.up, 4);
  fill(plain.up, 4);
  good = model_run(&plain, &cpu, 1, cpu, reference, &none) &&
         model_run(&served, (ggml_backend_t[]){gemmd, cpu}, 2, gemmd, y, &products);
  failures += check(good && error_of(y, reference) < 0.02, "error after a change", error_of(y, reference));
  failures += check(error_of(y, before) > 0.5, "change", error_of(y, before));

  ggml_backend_buffer_free(served.buffer);
  ggml_backend_buffer_free(plain.buffer);
  ggml_free(served.context);
  ggml_free(plain.context);
  ggml_backend_free(gemmd);
  ggml_backend_free(cpu);
  return failures > 0;
}
