#include "choice.h"

#include "../../variant.h"

#include <stdlib.h>
#include <string.h>

/* Far more than the shapes of a few models; a shape beyond them replaces one of PROBES others. */
enum { ENTRIES = 4096, PROBES = 8 };

struct key {
  uint8_t format, scale, y_type, bias_type;
  int32_t n, k, m; /* m below 0: exact */
  uint64_t in_row;
};

struct entry {
  bool used;
  struct key key;
  struct choice choice;
};

struct choice_table {
  struct choice_device device;
  struct entry entries[ENTRIES];
};

struct choice_table *choice_open(const struct choice_device *device) {
  struct choice_table *table = calloc(1, sizeof *table);
  if (table)
    table->device = *device;
  return table;
}

void choice_close(struct choice_table *table) {
  free(table);
}

static uint64_t key_hash(const struct key *key) {
  uint64_t words[sizeof *key / sizeof(uint64_t)], hash = 0;
  memcpy(words, key, sizeof words);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

static struct entry *entry_find(struct choice_table *table, const struct key *key) {
  uint64_t hash = key_hash(key);
  for (uint64_t i = 0; i < PROBES; i++) {
    struct entry *entry = &table->entries[(hash + i) % ENTRIES];
    if (!entry->used || memcmp(&entry->key, key, sizeof *key) == 0)
      return entry;
  }
  struct entry *replaced = &table->entries[(hash + (hash >> 32) % PROBES) % ENTRIES];
  replaced->used = false;
  return replaced;
}

struct choice choice_plain(const struct choice_request *request) {
  return (struct choice){
      .scaled = request->weight->scale == GEMM_SCALE_BLOCK,
      .d_type = request->weight->format == GEMM_FORMAT_INT8 ? GEMM_S32 : GEMM_F32,
  };
}

bool choice_final(const struct choice *choice, const struct choice_request *request) {
  bool scales = request->weight->scale != GEMM_SCALE_NONE && request->y_type != GEMM_S32;
  return choice->d_type == request->y_type && (choice->scaled || !scales) &&
         (choice->biased || request->bias_type == GEMM_TYPE_NONE);
}

static bool attempt(struct library *library, const struct choice_request *request,
                    const struct library_product *operands, struct choice *choice) {
  struct library_product product = *operands;
  struct error unused;
  product.m = request->m;
  product.scale = choice->scale;
  product.d_type = choice->d_type;
  product.bias_type = choice->biased ? request->bias_type : GEMM_TYPE_NONE;
  if (library_find(library, &product, &choice->algorithm, &unused) != STATUS_OK)
    return false;
  choice->way = CHOICE_LIBRARY;
  return true;
}

/* The rows up to which FP8 with a scale a row goes faster as bare sums and a pass. Measured on an H200: 8192x8192, M =
 * 1 22 us for the bare sums, 39 us for the library's product with row scales; M = 128 25.6 and 24.9, 10240x8192 30.4
 * and 26.8, 57344x8192 145 and 137. */
enum { BARE_ROWS_MOST = 64 };

/* Nor does the library's product with row scales cut K up: on an H200, 1280x8192, M = 256, 22.6 us, where bare sums and
 * a pass take 13.9. So those go first where tiles of 128 x 128 leave two thirds of the device idle and K is long. */
static bool library_idles(const struct choice_table *table, const struct choice_request *request) {
  enum { TILE = 128, LONG_K = 4096 };
  int64_t tiles = (request->n + TILE - 1) / TILE * ((request->m + TILE - 1) / TILE);
  return 3 * tiles <= table->device.multiprocessors && request->k >= LONG_K;
}

enum way { WAY_BARE, WAY_SCALED, WAY_SCALED_F32 };

bool choice_library_way(const struct choice_request *request, int way, struct choice *choice) {
  const struct gemm_weight *weight = request->weight;
  bool biased = request->bias_type != GEMM_TYPE_NONE, fp8 = weight->format == GEMM_FORMAT_FP8;
  if (gemm_is_int2(weight->format))
    return false;
  if (way == WAY_BARE) {
    *choice = choice_plain(request);
    choice->way = CHOICE_LIBRARY;
    return weight->scale != GEMM_SCALE_BLOCK;
  }
  if (weight->format == GEMM_FORMAT_INT8)
    return false;
  *choice = (struct choice){.way = CHOICE_LIBRARY, .scaled = fp8, .biased = biased, .d_type = request->y_type};
  if (fp8)
    choice->scale = weight->scale == GEMM_SCALE_BLOCK ? LIBRARY_SCALE_BLOCKS : LIBRARY_SCALE_ROWS;
  if (way == WAY_SCALED)
    return !biased || request->bias_type == request->y_type;
  choice->d_type = GEMM_F32;
  choice->biased = false;
  return way == WAY_SCALED_F32 && (biased || request->y_type != GEMM_F32);
}

static bool attempt_way(struct library *library, const struct choice_request *request,
                        const struct library_product *operands, enum way way, struct choice *out) {
  return choice_library_way(request, way, out) && attempt(library, request, operands, out);
}

/* y itself where the library makes it, else scaled sums and a pass. */
static bool attempt_scaled(struct library *library, const struct choice_request *request,
                           const struct library_product *operands, struct choice *out) {
  return attempt_way(library, request, operands, WAY_SCALED, out) ||
         attempt_way(library, request, operands, WAY_SCALED_F32, out);
}

/* FP8 rows of fewer columns than this often cancel to less than what the tensor cores cut off; see hopper/config.h. */
enum { FP8_COLUMNS_LEAST = 128 };

/* Rows of x up to which our kernel is asked before the library. */
enum { HOPPER_ROWS_MOST = 128 };

bool choice_hopper(const struct choice_table *table, const struct choice_request *request,
                   struct hopper_product *product, int *multiprocessors) {
  const struct gemm_weight *weight = request->weight;
  bool fp8 = weight->format == GEMM_FORMAT_FP8;
  if (table->device.capability != 90 || !(fp8 || weight->format == GEMM_FORMAT_INT8) ||
      (fp8 && weight->n < FP8_COLUMNS_LEAST))
    return false;
  *multiprocessors = table->device.multiprocessors;
  *product = (struct hopper_product){
      .format = weight->format,
      .scale = weight->scale,
      .m = request->m,
      .n = weight->n,
      .k = request->k,
      .in_row = request->in_row,
  };
  return true;
}

bool choice_few(const struct choice_table *table, const struct choice_request *request, struct hopper_product *product,
                int *multiprocessors) {
  const struct gemm_weight *weight = request->weight;
  *multiprocessors = table->device.multiprocessors;
  *product = (struct hopper_product){
      .format = weight->format,
      .scale = weight->scale,
      .m = request->m,
      .n = weight->n,
      .k = request->k,
  };
  return (weight->format == GEMM_FORMAT_INT8 || weight->format == GEMM_FORMAT_FP8) &&
         few_takes(product, table->device.capability);
}

/* Hopper's own instructions are faster, but for FP8 rows that are too short for them. Devices before it have INT8
 * alone. */
static bool attempt_few(const struct choice_table *table, const struct choice_request *request, struct choice *out) {
  const struct gemm_weight *weight = request->weight;
  struct hopper_product product;
  int multiprocessors;
  if (table->device.capability == 90 && !(weight->format == GEMM_FORMAT_FP8 && weight->n < FP8_COLUMNS_LEAST))
    return false;
  if (!choice_few(table, request, &product, &multiprocessors))
    return false;
  *out = (struct choice){.way = CHOICE_FEW, .scaled = true, .biased = true, .d_type = request->y_type};
  out->few = few_configure(&product, multiprocessors);
  return true;
}

/* Whether cuBLASLt's product with row scales meets the contract and makes y itself. */
static bool library_makes_y(const struct choice_request *request) {
  const struct gemm_weight *weight = request->weight;
  return weight->format == GEMM_FORMAT_FP8 && weight->scale != GEMM_SCALE_BLOCK && request->y_type == GEMM_BF16 &&
         (request->bias_type == GEMM_TYPE_NONE || request->bias_type == GEMM_BF16);
}

static bool attempt_hopper(const struct choice_table *table, const struct choice_request *request, struct choice *out) {
  const struct gemm_weight *weight = request->weight;
  bool fp8 = weight->format == GEMM_FORMAT_FP8, rounded = request->y_type == GEMM_BF16;
  struct hopper_product product;
  int multiprocessors;
  /* cuBLASLt's FP8 meets the contract in bf16 alone; its INT8 is exact. */
  if ((request->m > HOPPER_ROWS_MOST && (!fp8 || rounded)) ||
      !choice_hopper(table, request, &product, &multiprocessors))
    return false;
  *out = (struct choice){.way = CHOICE_HOPPER, .scaled = true, .biased = true, .d_type = request->y_type};
  out->hopper = hopper_configure(&product, multiprocessors);
  return !(fp8_many_takes(&product) && library_makes_y(request) &&
           fp8_many_library_us(&product, multiprocessors) < hopper_us(&out->hopper, &product, multiprocessors));
}

bool choice_fp8_many(const struct choice_table *table, const struct choice_request *request,
                     struct hopper_product *product, int *multiprocessors) {
  bool hopper = choice_hopper(table, request, product, multiprocessors);
  product->y_type = request->y_type;
  return hopper && fp8_many_takes(product);
}

/* How much longer than its model says the kernel for few rows takes where sums leave the tensor cores after every
 * instruction: 1.1 to 1.2 times up to 128 rows of x, 1.4 to 1.8 with 256, 2.2 to 2.4 with 1024. */
static double hopper_finely(const struct choice_request *request) {
  enum { FEW = 128, MORE = 256 };
  if (request->y_type == GEMM_BF16)
    return 1;
  return request->m <= FEW ? 1.15 : request->m <= MORE ? 1.5 : 2.2;
}

/* By the models of this kernel, of the library's and of that for fewer rows. Where both are nearly equal, the library
 * has many rows, of which it needs less power for the same; this one has up to 256, because it is a quarter faster with
 * the numbers of rows below those that are multiples of 128. */
static bool attempt_fp8_many(const struct choice_table *table, const struct choice_request *request,
                             struct choice *out) {
  enum { EQUAL_ROWS = 256 };
  static const double MANY = 0.975, FEWER = 1.03;
  struct hopper_product product;
  int multiprocessors;
  double us;
  *out = (struct choice){.way = CHOICE_FP8_MANY, .scaled = true, .biased = true, .d_type = request->y_type};
  if (!choice_fp8_many(table, request, &product, &multiprocessors))
    return false;
  out->fp8_many = fp8_many_configure(&product, multiprocessors, &us);
  if (library_makes_y(request) &&
      us > (request->m <= EQUAL_ROWS ? FEWER : MANY) * fp8_many_library_us(&product, multiprocessors))
    return false;
  if (request->m > HOPPER_ROWS_MOST && request->y_type == GEMM_BF16)
    return true;
  const struct hopper_config hopper = hopper_configure(&product, multiprocessors);
  return us < hopper_finely(request) * hopper_us(&hopper, &product, multiprocessors);
}

bool choice_many(const struct choice_table *table, const struct choice_request *request, struct many_config *config,
                 double *busy) {
  const struct hopper_product product = {.format = request->weight->format,
                                         .m = request->m,
                                         .n = request->weight->n,
                                         .k = request->k,
                                         .y_type = request->y_type};
  *config = many_configure(&product, table->device.multiprocessors, busy);
  return table->device.capability == 90 && many_takes(&product);
}

/* Where tiles leave many multiprocessors idle, the library cuts up K. */
static const double BUSY_LEAST = 0.6;

static bool attempt_many(const struct choice_table *table, const struct choice_request *request, struct choice *out) {
  double busy;
  *out = (struct choice){.way = CHOICE_MANY, .scaled = true, .biased = true, .d_type = request->y_type};
  return choice_many(table, request, &out->many, &busy) && busy >= BUSY_LEAST;
}

static struct choice choose(const struct choice_table *table, struct library *library,
                            const struct choice_request *request, const struct library_product *operands) {
  const struct gemm_weight *weight = request->weight;
  bool int8 = weight->format == GEMM_FORMAT_INT8;
  bool bare_first =
      int8 || (weight->format == GEMM_FORMAT_FP8 && (request->m <= BARE_ROWS_MOST || library_idles(table, request)));
  struct choice choice;
  if (attempt_few(table, request, &choice))
    return choice;
  if (weight->format == GEMM_FORMAT_FP8 && weight->n < FP8_COLUMNS_LEAST)
    return choice_plain(request);
  if (attempt_fp8_many(table, request, &choice) || attempt_hopper(table, request, &choice) ||
      attempt_many(table, request, &choice))
    return choice;
  /* Where FP8 tensor cores cut sums off is known of Hopper alone; y in bf16 is rounded more coarsely than that. */
  if (weight->format == GEMM_FORMAT_FP8 && request->y_type != GEMM_BF16 && table->device.capability != 90)
    return choice_plain(request);
  if (bare_first && attempt_way(library, request, operands, WAY_BARE, &choice))
    return choice;
  if (!int8 && attempt_scaled(library, request, operands, &choice))
    return choice;
  if (!bare_first && attempt_way(library, request, operands, WAY_BARE, &choice))
    return choice;
  return choice_plain(request);
}

struct choice choice_find(struct choice_table *table, struct library *library, const struct choice_request *request,
                          const struct library_product *operands, bool exact) {
  struct choice_request at = *request;
  at.m = exact ? request->m : variant_bucket(request->m);
  struct key key = {
      .format = (uint8_t)at.weight->format,
      .scale = (uint8_t)at.weight->scale,
      .y_type = (uint8_t)at.y_type,
      .bias_type = (uint8_t)at.bias_type,
      .n = (int32_t)at.n,
      .k = (int32_t)at.k,
      .m = (int32_t)(exact ? -at.m : at.m),
      .in_row = at.in_row,
  };
  struct entry *entry = entry_find(table, &key);
  if (!entry->used) {
    entry->choice = choose(table, library, &at, operands);
    entry->key = key;
    entry->used = true;
  }
  return entry->choice;
}
