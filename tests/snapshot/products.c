#include "snapshot.h"

#include <inttypes.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

enum { TRIED_MOST = 8, LIBRARY_TRIED = 2, LIBRARY_EVERY = 6, M_EACH = 4, BUILT_N = 777, BUILT_EVERY = 3 };
#define PLAIN_TERMS ((uint64_t)1 << 31) /* what the plain kernel computes in a moment on a GPU */

/* M of each come by turns from the list. */
static const struct {
  int64_t n, k;
  int count; /* of M; those of large shapes are few */
} shapes[] = {{129, 260, M_EACH},  {777, 1025, M_EACH},  {1536, 384, M_EACH},  {31, 1100, M_EACH},
              {256, 2048, M_EACH}, {4096, 1024, M_EACH}, {1280, 4096, M_EACH}, {4500, 300, M_EACH},
              {4096, 4096, 3},     {14336, 4096, 2},     {4096, 14336, 2},     {8192, 1024, 3}};
static const int64_t rows[] = {1, 130, 16, 512, 5, 64, 300, 33, 1, 1024, 9, 100, 24, 700, 2};

/* Kernels that are made at run time. */
static const char *const built[] = {
    "tile block_m=64 block_n=64 num_stages=3",
    "tile block_m=128 block_n=64 block_k=128 num_warps=8 num_stages=1",
    "tile block_m=64 block_n=64 block_k=128 num_stages=3 split_k=4",
    "tile block_m=16 block_n=48 block_k=256 num_warps=3 num_stages=2 split_k=3 split_k_mode=1",
};

struct product {
  struct gemm_weight shape;
  struct backend_weight *weight;
  struct variant_problem problem;
  struct backend_job job;
  bool uneven;
};

/* One line. The problem's name has M of the bucket, so M of the product stands beside it. */
static void write_line(struct snapshot *snapshot, const struct product *product, const char *kernel, const char *what) {
  char name[VARIANT_TEXT_BYTES];
  fprintf(snapshot->out, "%s M %" PRId64 "%s, %s: %s\n", variant_problem_text(&product->problem, name), product->job.m,
          product->uneven ? " uneven" : "", kernel, what);
}

static void compute(struct snapshot *snapshot, struct product *product, struct variant *variant) {
  char text[VARIANT_TEXT_BYTES], hash[SNAPSHOT_HASH_DIGITS + 1];
  struct error error;
  enum status status = STATUS_OK;
  const char *kernel = variant == NULL ? "default" : variant_text(variant, text);
  if (variant != NULL)
    status = snapshot->ops->variant_check(snapshot->backend, &product->problem, variant, NULL, &error);
  product->job.variant = variant;
  if (status == STATUS_OK && !snapshot_stage(snapshot, &product->shape, &product->job, product->uneven))
    status = error_set(&error, STATUS_TOO_LARGE, "the arena is too small");
  if (status == STATUS_OK)
    status = snapshot_finish(snapshot, &product->job, &error);
  if (status != STATUS_OK) {
    write_line(snapshot, product, kernel, error.text);
    return;
  }
  snprintf(hash, sizeof hash, "%016" PRIx64, snapshot_y_hash(&product->job, product->shape.n));
  write_line(snapshot, product, kernel, hash);
}

/* The first of each family, and the others at equal distances in the list. */
static void compute_listed(struct snapshot *snapshot, struct product *product, struct variant *list, int count,
                           int most) {
  int stride = count / most + 1;
  for (int i = 0; i < count; i++)
    if (i % stride == 0 || list[i].family != list[i - 1].family)
      compute(snapshot, product, &list[i]);
}

static void compute_built(struct snapshot *snapshot, struct product *product) {
  struct error error;
  for (int i = 0; i < COUNT(built); i++) {
    struct variant variant;
    if (variant_parse(snapshot->ops->families, built[i], &variant, &error) != STATUS_OK)
      continue;
    if (snapshot->ops->variant_build(snapshot->backend, &product->problem, &variant, &error) == STATUS_OK)
      compute(snapshot, product, &variant);
    else
      write_line(snapshot, product, built[i], error.text);
  }
}

static void compute_all(struct snapshot *snapshot, struct product *product, int index) {
  const struct backend_ops *ops = snapshot->ops;
  struct variant list[SNAPSHOT_CANDIDATES], plain = variant_default(&variant_plain);
  uint64_t terms = (uint64_t)product->job.m * (uint64_t)product->shape.n * (uint64_t)product->shape.k;
  if (snapshot->terms_most != 0 && terms > snapshot->terms_most)
    return;
  compute(snapshot, product, NULL);
  if (terms <= PLAIN_TERMS)
    compute(snapshot, product, &plain);
  int count = ops->variants(snapshot->backend, &product->problem, NULL, false, list, SNAPSHOT_CANDIDATES);
  compute_listed(snapshot, product, list, count, TRIED_MOST);
  if (index % LIBRARY_EVERY == 0 && ops->library_variants != NULL) {
    count = ops->library_variants(snapshot->backend, &product->problem, false, list, SNAPSHOT_CANDIDATES);
    compute_listed(snapshot, product, list, count < LIBRARY_TRIED ? count : LIBRARY_TRIED, LIBRARY_TRIED);
  }
  if (snapshot->builds && product->shape.n == BUILT_N && index % BUILT_EVERY == 0)
    compute_built(snapshot, product);
}

static void one_weight(struct snapshot *snapshot, int kind, int place) {
  static const enum gemm_type biases[] = {GEMM_TYPE_NONE, GEMM_BF16, GEMM_TYPE_NONE, GEMM_F32, GEMM_F16};
  struct product product = {.shape = {.n = shapes[place].n,
                                      .k = shapes[place].k,
                                      .format = snapshot_kinds[kind].format,
                                      .scale = snapshot_kinds[kind].scale}};
  struct backend_plan plan = {0};
  struct error error;
  uint64_t checksum = 0;
  int first = 3 * kind + 4 * place;
  if (snapshot->terms_most != 0 && (uint64_t)product.shape.n * (uint64_t)product.shape.k > snapshot->terms_most)
    return;
  enum status status =
      snapshot_load(snapshot, &product.shape, 0, 1 + (uint64_t)place, &plan, &checksum, &product.weight, &error);
  fprintf(snapshot->out, "weight %s %s %" PRId64 "x%" PRId64 ": ", gemm_format_name(product.shape.format),
          gemm_scale_name(product.shape.scale), product.shape.n, product.shape.k);
  if (status != STATUS_OK) {
    fprintf(snapshot->out, "%s\n", error.text);
    return;
  }
  fprintf(snapshot->out, "%" PRIu64 " bytes, aligned to %" PRIu64 ", layout %" PRIu32 ", checksum %016" PRIx64 "\n",
          plan.bytes, plan.align, plan.layout, checksum);
  for (int i = first; i < first + shapes[place].count; i++) {
    enum gemm_type x_type = snapshot_x_type(product.shape.format, i + place);
    enum gemm_type y_type = snapshot_y_type(product.shape.format, x_type, i + kind);
    int64_t m = rows[i % COUNT(rows)];
    enum gemm_type bias_type = y_type == GEMM_S32 ? GEMM_TYPE_NONE : biases[i % COUNT(biases)];
    product.uneven = i % 3 == 0;
    product.problem = (struct variant_problem){
        .weight = product.shape, .m = variant_bucket(m), .x_type = x_type, .y_type = y_type, .bias_type = bias_type};
    product.job = (struct backend_job){
        .weight = product.weight, .m = m, .x_type = x_type, .y_type = y_type, .bias_type = bias_type};
    compute_all(snapshot, &product, i);
  }
  snapshot->ops->weight_detach(snapshot->backend, product.weight);
}

void snapshot_products(struct snapshot *snapshot) {
  for (int kind = 0; kind < SNAPSHOT_KINDS; kind++)
    for (int place = 0; place < COUNT(shapes); place++)
      one_weight(snapshot, kind, place);
}
