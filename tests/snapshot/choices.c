#include "snapshot.h"

#include <inttypes.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

enum { TYPES_EACH = 3, LIBRARY_EVERY = 64 };

static const struct {
  int64_t n, k;
} shapes[] = {
    /* a model of 70B parameters, whole and over eight devices */
    {10240, 8192},
    {8192, 8192},
    {57344, 8192},
    {8192, 28672},
    {1280, 8192},
    {8192, 1024},
    {7168, 8192},
    {8192, 3584},
    /* other models */
    {14336, 4096},
    {4096, 14336},
    {6144, 4096},
    {4096, 4096},
    {28672, 5120},
    {11008, 4096},
    {5120, 13824},
    /* small and ragged ones */
    {1536, 384},
    {384, 1536},
    {777, 1025},
    {129, 260},
    {31, 1100},
    {5, 17},
    {4500, 300},
    {128, 128},
};

static const int64_t rows[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192};

static uint64_t hash_list(const struct variant *variants, int count) {
  char text[VARIANT_TEXT_BYTES] = "";
  uint64_t hash = 0;
  for (int i = 0; i < count; i++) {
    variant_text(&variants[i], text);
    uint64_t length = 0;
    while (text[length] != '\0')
      length++;
    hash = snapshot_hash(text, length, hash);
  }
  return hash;
}

static void one(struct snapshot *snapshot, const struct variant_problem *problem, bool library) {
  struct variant list[SNAPSHOT_CANDIDATES], near[SNAPSHOT_CANDIDATES], first;
  char name[VARIANT_TEXT_BYTES], text[VARIANT_TEXT_BYTES];
  const struct backend_ops *ops = snapshot->ops;
  if (ops->variants(snapshot->backend, problem, NULL, false, &first, 1) != 1)
    first = (struct variant){.family = NULL};
  int count = ops->variants(snapshot->backend, problem, NULL, false, list, SNAPSHOT_CANDIDATES);
  int beside = ops->variants(snapshot->backend, problem, &first, false, near, SNAPSHOT_CANDIDATES);
  fprintf(snapshot->out, "%s: %s, %d %016" PRIx64 ", near %d %016" PRIx64, variant_problem_text(problem, name),
          variant_text(&first, text), count, hash_list(list, count), beside, hash_list(near, beside));
  count = ops->variants(snapshot->backend, problem, NULL, true, list, SNAPSHOT_CANDIDATES);
  fprintf(snapshot->out, ", all %d %016" PRIx64, count, hash_list(list, count));
  if (library && ops->library_variants != NULL) {
    count = ops->library_variants(snapshot->backend, problem, false, list, SNAPSHOT_CANDIDATES);
    fprintf(snapshot->out, ", library %d %016" PRIx64, count, hash_list(list, count));
  }
  fputc('\n', snapshot->out);
}

void snapshot_choices(struct snapshot *snapshot) {
  static const enum gemm_type biases[] = {GEMM_TYPE_NONE, GEMM_F32, GEMM_TYPE_NONE, GEMM_BF16, GEMM_F16};
  int asked = 0;
  for (int kind = 0; kind < SNAPSHOT_KINDS; kind++)
    for (int s = 0; s < COUNT(shapes); s++)
      for (int r = 0; r < COUNT(rows); r++)
        for (int t = 0; t < TYPES_EACH; t++) {
          struct variant_problem problem = {.weight = {.n = shapes[s].n,
                                                       .k = shapes[s].k,
                                                       .format = snapshot_kinds[kind].format,
                                                       .scale = snapshot_kinds[kind].scale},
                                            .m = rows[r]};
          /* f16 and bf16 of x before the others, which come by turns */
          problem.x_type = snapshot_x_type(problem.weight.format, t < 2 ? t + 1 : s + r);
          problem.y_type = snapshot_y_type(problem.weight.format, problem.x_type, t < 2 ? t + 1 : s + 2 * r);
          problem.bias_type = problem.y_type == GEMM_S32 ? GEMM_TYPE_NONE : biases[(s + r + t) % COUNT(biases)];
          one(snapshot, &problem, asked++ % LIBRARY_EVERY == 0);
        }
}
