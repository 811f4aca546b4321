#include "gemm.h"

#include "limits.h"
#include "number.h"
#include "place.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *const type_names[] = {
    [GEMM_TYPE_NONE] = "none", [GEMM_F32] = "f32", [GEMM_F16] = "f16",   [GEMM_BF16] = "bf16", [GEMM_INT8] = "int8",
    [GEMM_E4M3] = "e4m3",      [GEMM_S32] = "s32", [GEMM_E8M0] = "e8m0", [GEMM_E2M1] = "e2m1",
};
static const uint32_t type_bytes[] = {
    [GEMM_F32] = 4, [GEMM_F16] = 2, [GEMM_BF16] = 2, [GEMM_INT8] = 1, [GEMM_E4M3] = 1, [GEMM_S32] = 4, [GEMM_E8M0] = 1,
};
#define BIT(number) (1u << (number))
#define ROWS_AND_GROUPS                                                                                                \
  (BIT(GEMM_SCALE_ROW) | (BIT(GEMM_SCALE_GROUP32_BF16_ZEROS + 1) - BIT(GEMM_SCALE_GROUP)) |                            \
   (BIT(GEMM_SCALE_GROUP32_BF16_ZEROS_F16 + 1) - BIT(GEMM_SCALE_ROW_ZEROS_F16)))
#define REAL (BIT(GEMM_F32) | BIT(GEMM_F16) | BIT(GEMM_BF16))

static const struct gemm_format_facts formats[GEMM_FORMATS] = {
    [GEMM_FORMAT_NONE] = {.name = "none"},
#define FORMAT(number, NAME, word, ...) [GEMM_FORMAT_##NAME] = {.name = word, __VA_ARGS__},
#include "formats.def"
};
static const struct gemm_scale_facts modes[GEMM_SCALES] = {
#define SCALE(number, NAME, word, ...) [GEMM_SCALE_##NAME] = {.name = word, __VA_ARGS__},
#include "formats.def"
};

uint32_t gemm_type_bytes(enum gemm_type type) {
  return (uint32_t)type < COUNT(type_bytes) ? type_bytes[type] : 0;
}

const char *gemm_type_name(enum gemm_type type) {
  return (uint32_t)type < COUNT(type_names) ? type_names[type] : "unknown";
}

const char *gemm_format_name(enum gemm_format format) {
  return gemm_format_facts(format)->name;
}

const char *gemm_scale_name(enum gemm_scale scale) {
  return gemm_scale_facts(scale)->name;
}

/* "none" itself is no choice of a type or format. */
bool gemm_type_parse(const char *name, enum gemm_type *out) {
  *out = GEMM_TYPE_NONE;
  for (uint32_t i = 1; i < COUNT(type_names) && *out == GEMM_TYPE_NONE; i++)
    if (strcmp(type_names[i], name) == 0)
      *out = (enum gemm_type)i;
  return *out != GEMM_TYPE_NONE;
}

bool gemm_format_parse(const char *name, enum gemm_format *out) {
  *out = GEMM_FORMAT_NONE;
  for (int i = 1; i < GEMM_FORMATS && *out == GEMM_FORMAT_NONE; i++)
    if (strcmp(formats[i].name, name) == 0)
      *out = (enum gemm_format)i;
  return *out != GEMM_FORMAT_NONE;
}

bool gemm_scale_parse(const char *name, enum gemm_scale *out) {
  *out = GEMM_SCALE_NONE;
  for (int i = 1; i < GEMM_SCALES && *out == GEMM_SCALE_NONE; i++)
    if (strcmp(modes[i].name, name) == 0)
      *out = (enum gemm_scale)i;
  return *out != GEMM_SCALE_NONE || strcmp(name, modes[GEMM_SCALE_NONE].name) == 0;
}

const struct gemm_format_facts *gemm_format_facts(enum gemm_format format) {
  static const struct gemm_format_facts none = {.name = "unknown"};
  return (uint32_t)format < GEMM_FORMATS ? &formats[format] : &none;
}

const struct gemm_scale_facts *gemm_scale_facts(enum gemm_scale scale) {
  static const struct gemm_scale_facts none = {.name = "unknown"};
  return (uint32_t)scale < GEMM_SCALES ? &modes[scale] : &none;
}

enum gemm_type gemm_scale_type(const struct gemm_weight *weight) {
  enum gemm_type type = gemm_scale_facts(weight->scale)->type;
  return type != GEMM_TYPE_NONE ? type : gemm_format_facts(weight->format)->scale_type;
}

float gemm_scale_get(enum gemm_type type, const void *scales, uint64_t index) {
  uint64_t bytes = gemm_type_bytes(type);
  float value = 0.0f;
  uint16_t half = 0;
  memcpy(bytes == sizeof half ? (void *)&half : (void *)&value, (const uint8_t *)scales + index * bytes, bytes);
  switch (type) {
  case GEMM_F16:
    return number_from_f16(half);
  case GEMM_BF16:
    return number_from_bf16(half);
  case GEMM_E8M0:
    return number_from_e8m0(((const uint8_t *)scales)[index]);
  case GEMM_E4M3:
    return number_from_e4m3(((const uint8_t *)scales)[index]);
  default:
    return value;
  }
}

void gemm_scale_put(enum gemm_type type, void *scales, uint64_t index, float value) {
  uint64_t bytes = gemm_type_bytes(type);
  uint16_t half = type == GEMM_F16 ? number_to_f16(value) : number_to_bf16(value);
  uint8_t byte = type == GEMM_E8M0 ? number_to_e8m0(value) : number_to_e4m3(value);
  memcpy((uint8_t *)scales + index * bytes,
         bytes == sizeof value  ? (const void *)&value
         : bytes == sizeof half ? (const void *)&half
                                : (const void *)&byte,
         bytes);
}

float gemm_zero_get(enum gemm_scale scale, const void *zeros, uint64_t index) {
  return gemm_scale_facts(scale)->zeros_f16 ? gemm_scale_get(GEMM_F16, zeros, index)
                                            : (float)((const uint8_t *)zeros)[index];
}

void gemm_zero_put(enum gemm_scale scale, void *zeros, uint64_t index, float value) {
  if (gemm_scale_facts(scale)->zeros_f16)
    gemm_scale_put(GEMM_F16, zeros, index, value);
  else
    ((uint8_t *)zeros)[index] = (uint8_t)value;
}

int64_t gemm_scale_group(const struct gemm_weight *weight) {
  int64_t group = gemm_scale_facts(weight->scale)->k;
  return group > 0 ? group : weight->k;
}

bool gemm_takes_scale(enum gemm_format format, enum gemm_scale scale) {
  return (uint32_t)scale < GEMM_SCALES && (gemm_format_facts(format)->scales & BIT(scale)) != 0;
}

const char *gemm_method_name(enum gemm_method method) {
  static const char *const words[] = {"default", "absmax", "least-squares", "ternary"};
  return (size_t)method < sizeof words / sizeof *words ? words[method] : "unknown";
}

bool gemm_takes_method(enum gemm_format format, enum gemm_method method) {
  return method == GEMM_METHOD_DEFAULT ||
         ((uint32_t)method < 32 && (gemm_format_facts(format)->methods & BIT(method)) != 0);
}

bool gemm_stored_alike(enum gemm_format a, enum gemm_format b) {
  enum gemm_format a_as = gemm_format_facts(a)->stored_as, b_as = gemm_format_facts(b)->stored_as;
  return (a_as != GEMM_FORMAT_NONE ? a_as : a) == (b_as != GEMM_FORMAT_NONE ? b_as : b);
}

bool gemm_is_int2(enum gemm_format format) {
  return gemm_format_facts(format)->bits == 2;
}

bool gemm_is_packed(enum gemm_format format) {
  int bits = gemm_format_facts(format)->bits;
  return bits > 0 && bits < 8;
}

bool gemm_is_wide(enum gemm_format format) {
  return gemm_format_facts(format)->bits == 16;
}

bool gemm_quantizes_x(enum gemm_format format) {
  return gemm_format_facts(format)->codes != GEMM_TYPE_NONE;
}

uint64_t gemm_round_up(uint64_t value, uint64_t to) {
  uint64_t sum;
  return __builtin_add_overflow(value, to - 1, &sum) ? UINT64_MAX : sum & ~(to - 1);
}

uint64_t gemm_ceil_div(uint64_t value, uint64_t by) {
  return value / by + (value % by != 0);
}

uint64_t gemm_x_scale_columns(const struct gemm_weight *weight) {
  return weight->scale == GEMM_SCALE_BLOCK ? gemm_ceil_div((uint64_t)weight->k, GEMM_GROUP) : 1;
}

/* ---- weights */

uint32_t gemm_rotation(uint32_t input) {
  return input / GEMM_INPUT_ROTATE;
}

static enum status check_input(const struct gemm_weight *weight, struct error *error) {
  uint32_t input = weight->input, stages = gemm_rotation(input);
  uint32_t kinds = input % GEMM_INPUT_ROTATE + (stages > 0 ? GEMM_INPUT_ROTATE : 0);
  if (input == 0)
    return STATUS_OK;
  if (stages > GEMM_ROTATE_MOST || (kinds & ~gemm_format_facts(weight->format)->inputs) != 0 ||
      weight->scale == GEMM_SCALE_BLOCK || weight->experts > 0)
    return error_set(error, STATUS_UNSUPPORTED, "a %s weight with scale mode %s%s does not take input %" PRIu32,
                     gemm_format_name(weight->format), gemm_scale_name(weight->scale),
                     weight->experts > 0 ? " and experts" : "", input);
  if (weight->k % ((int64_t)1 << 2 * stages) != 0)
    return error_set(error, STATUS_UNSUPPORTED, "K must be a multiple of %d to be rotated, got %" PRId64,
                     1 << 2 * stages, weight->k);
  return STATUS_OK;
}

int64_t gemm_matrices(const struct gemm_weight *weight) {
  return weight->experts > 0 ? weight->experts : 1;
}

struct gemm_weight gemm_expert(const struct gemm_weight *weight) {
  struct gemm_weight one = *weight;
  one.experts = 0;
  return one;
}

enum status gemm_weight_check(const struct gemm_weight *weight, struct error *error) {
  int64_t k_most = gemm_format_facts(weight->format)->k_most;
  if (weight->format <= GEMM_FORMAT_NONE || weight->format >= GEMM_FORMATS)
    return error_field(error, STATUS_INVALID, FIELD_FORMAT, weight->format, 1, GEMM_FORMATS - 1);
  if (weight->n < 1 || weight->n > LIMIT_N)
    return error_field(error, STATUS_INVALID, FIELD_N, weight->n, 1, LIMIT_N);
  if (weight->k < 1 || weight->k > k_most)
    return error_field(error, STATUS_INVALID, FIELD_K, weight->k, 1, k_most);
  if (weight->experts < 0 || weight->experts > LIMIT_EXPERTS)
    return error_field(error, STATUS_INVALID, FIELD_EXPERTS, weight->experts, 0, LIMIT_EXPERTS);
  if (!gemm_takes_scale(weight->format, weight->scale)) {
    error_field(error, STATUS_INVALID, FIELD_SCALE, weight->scale, 1, 0);
    snprintf(error->text, sizeof error->text, "scale mode %s (%d) does not go with format %s",
             gemm_scale_name(weight->scale), (int)weight->scale, gemm_format_name(weight->format));
    return error->status;
  }
  return check_input(weight, error);
}

static void scale_shape(const struct gemm_weight *weight, struct gemm_layout *out) {
  const struct gemm_scale_facts *facts = gemm_scale_facts(weight->scale);
  if (weight->scale == GEMM_SCALE_NONE)
    return;
  out->scale_rows = facts->n > 0 ? gemm_ceil_div((uint64_t)weight->n, (uint64_t)facts->n) : 1;
  out->scale_rows *= (uint64_t)gemm_matrices(weight);
  out->scale_columns = facts->k > 0 ? gemm_ceil_div((uint64_t)weight->k, (uint64_t)facts->k) : 1;
}

/* Puts a section behind what there is; returns whether 64 bits do not hold that. */
static bool add_section(struct gemm_layout *layout, uint64_t bytes, uint64_t *offset) {
  *offset = gemm_round_up(layout->total_bytes, GEMM_SECTION);
  return __builtin_add_overflow(*offset, bytes, &layout->total_bytes);
}

enum status gemm_layout_compute(const struct gemm_weight *weight, struct gemm_layout *out, struct error *error) {
  enum status status = gemm_weight_check(weight, error);
  if (status != STATUS_OK)
    return status;
  const struct gemm_format_facts *facts = gemm_format_facts(weight->format);
  uint64_t scale_bytes = gemm_type_bytes(gemm_scale_type(weight));
  struct gemm_layout layout = {.row_bytes = gemm_round_up((uint64_t)weight->k, (uint64_t)facts->align) *
                                            (uint64_t)facts->bits / 8};
  scale_shape(weight, &layout);
  bool over =
      __builtin_mul_overflow((uint64_t)(weight->n * gemm_matrices(weight)), layout.row_bytes, &layout.codes_bytes);
  layout.scales_offset = gemm_round_up(layout.codes_bytes, GEMM_SECTION);
  over |= layout.scales_offset == UINT64_MAX;
  over |= __builtin_mul_overflow(layout.scale_rows, layout.scale_columns, &layout.scale_count);
  over |= __builtin_mul_overflow(layout.scale_count, scale_bytes, &layout.scales_bytes);
  over |= __builtin_add_overflow(layout.scales_offset, layout.scales_bytes, &layout.total_bytes);
  if (gemm_scale_facts(weight->scale)->zeros) {
    over |= __builtin_mul_overflow(layout.scale_count, gemm_scale_facts(weight->scale)->zeros_f16 ? 2u : 1u,
                                   &layout.zeros_bytes);
    over |= add_section(&layout, layout.zeros_bytes, &layout.zeros_offset);
  }
  if (gemm_scale_facts(weight->scale)->factors) {
    layout.factors_bytes = layout.scale_rows * sizeof(float);
    over |= add_section(&layout, layout.factors_bytes, &layout.factors_offset);
  }
  if (weight->input & (GEMM_INPUT_SCALE | GEMM_INPUT_ORDER)) {
    bool scaled = (weight->input & GEMM_INPUT_SCALE) != 0, ordered = (weight->input & GEMM_INPUT_ORDER) != 0;
    layout.input_bytes = (scaled ? GEMM_SECTION : 0) + (ordered ? (uint64_t)weight->k * sizeof(uint32_t) : 0);
    over |= add_section(&layout, layout.input_bytes, &layout.input_offset);
    layout.order_offset = layout.input_offset + (scaled ? GEMM_SECTION : 0);
  }
  if (over)
    return error_set(error, STATUS_TOO_LARGE, "a weight of %" PRId64 " x %" PRId64 " does not fit into 64 bits",
                     weight->n, weight->k);
  *out = layout;
  return STATUS_OK;
}

/* ---- products: types */

bool gemm_takes_x(enum gemm_format format, enum gemm_type x_type) {
  return (uint32_t)x_type < COUNT(type_names) && (gemm_format_facts(format)->x_types & BIT(x_type)) != 0;
}

bool gemm_takes_y(enum gemm_format format, enum gemm_type x_type, enum gemm_type y_type) {
  if (!gemm_takes_x(format, x_type))
    return false;
  if (y_type == GEMM_S32)
    return gemm_format_facts(format)->raw && x_type == gemm_format_facts(format)->codes;
  return y_type == GEMM_F32 || y_type == GEMM_F16 || y_type == GEMM_BF16;
}

static enum status type_error(struct error *error, enum field field, enum gemm_type type) {
  error_field(error, STATUS_UNSUPPORTED, field, type, 1, 0);
  gemm_error_compose(error);
  return error->status;
}

static enum status check_types(const struct gemm_product *product, enum gemm_format format, struct error *error) {
  bool raw = product->y_type == GEMM_S32;
  if (!gemm_takes_x(format, product->x_type))
    return type_error(error, FIELD_X_TYPE, product->x_type);
  if (!gemm_takes_y(format, product->x_type, product->y_type))
    return type_error(error, FIELD_Y_TYPE, product->y_type);
  switch (product->bias_type) {
  case GEMM_TYPE_NONE:
    return STATUS_OK;
  case GEMM_F32:
  case GEMM_F16:
  case GEMM_BF16:
    return raw ? type_error(error, FIELD_BIAS_TYPE, product->bias_type) : STATUS_OK;
  default:
    return type_error(error, FIELD_BIAS_TYPE, product->bias_type);
  }
}

/* ---- products: places */

struct place {
  uint64_t offset, bytes;
  enum field field;
  uint32_t tensor;
  uint64_t tensor_bytes;
};

static enum status check_places(const struct gemm_product *product, uint64_t begin, uint64_t end,
                                const struct gemm_extent *extent, struct error *error) {
  const struct place places[] = {
      {product->y_offset, extent->y_bytes, FIELD_Y_OFFSET, product->y_tensor, product->y_tensor_bytes},
      {product->x_offset, extent->x_bytes, FIELD_X_OFFSET, product->x_tensor, product->x_tensor_bytes},
      {product->bias_offset, extent->bias_bytes, FIELD_BIAS_OFFSET, 0, 0},
      {product->x_scale_offset, extent->x_scale_bytes, FIELD_X_SCALE_OFFSET, 0, 0},
  };
  for (size_t i = 0; i < COUNT(places); i++) {
    const struct place *place = &places[i];
    bool own = place->tensor != 0;
    if (place->bytes == 0)
      continue;
    enum status status =
        place_check(place->offset, place->bytes, own ? 0 : begin, own ? place->tensor_bytes : end, place->field, error);
    if (status != STATUS_OK)
      return status;
  }
  for (size_t i = 1; i < COUNT(places); i++) {
    if (places[i].tensor != places[0].tensor ||
        !place_overlap(places[0].offset, places[0].bytes, places[i].offset, places[i].bytes))
      continue;
    error_field(error, STATUS_INVALID, FIELD_Y_OFFSET, place_signed(product->y_offset), 1, 0);
    gemm_error_compose(error);
    return error->status;
  }
  return STATUS_OK;
}

/* ---- products: experts */

int64_t gemm_x_rows(int64_t m, const struct gemm_choice *choice) {
  return choice->x_pairs ? m * choice->top : m;
}

int64_t gemm_y_rows(int64_t m, const struct gemm_choice *choice) {
  return choice->top > 0 && !choice->sum ? m * choice->top : m;
}

static enum status check_choice(const struct gemm_product *product, const struct gemm_weight *weight,
                                struct error *error) {
  const struct gemm_choice *choice = &product->choice;
  bool chooses = weight->experts > 0;
  if (choice->top < (chooses ? 1 : 0) || choice->top > weight->experts)
    return error_field(error, STATUS_INVALID, FIELD_TOP, choice->top, chooses ? 1 : 0, weight->experts);
  if (product->m * choice->top > LIMIT_M)
    return error_field(error, STATUS_INVALID, FIELD_PAIRS, product->m * choice->top, 1, LIMIT_M);
  if (chooses && gemm_type_bytes(product->x_type) == 1)
    return type_error(error, FIELD_X_TYPE, product->x_type);
  if (choice->routed && !choice->sum)
    return error_field(error, STATUS_INVALID, FIELD_ROUTING_OFFSET, place_signed(choice->routing_offset), 0, 0);
  return STATUS_OK;
}

static enum status check_choice_places(const struct gemm_product *product, const struct gemm_extent *extent,
                                       uint64_t begin, uint64_t end, struct error *error) {
  const struct gemm_choice *choice = &product->choice;
  const struct place places[] = {{choice->ids_offset, extent->ids_bytes, FIELD_IDS_OFFSET, 0, 0},
                                 {choice->routing_offset, extent->routing_bytes, FIELD_ROUTING_OFFSET, 0, 0}};
  bool own = product->x_tensor != 0;
  for (size_t i = 0; i < COUNT(places); i++) {
    const struct place *place = &places[i];
    if (place->bytes == 0)
      continue;
    enum status status = place_check(place->offset, place->bytes, own ? 0 : begin, own ? product->x_tensor_bytes : end,
                                     place->field, error);
    if (status != STATUS_OK)
      return status;
    if (product->x_tensor == product->y_tensor &&
        place_overlap(product->y_offset, extent->y_bytes, place->offset, place->bytes)) {
      error_field(error, STATUS_INVALID, place->field, place_signed(place->offset), 1, 0);
      gemm_error_compose(error);
      return error->status;
    }
  }
  return STATUS_OK;
}

enum status gemm_product_check(const struct gemm_product *product, const struct gemm_weight *weight,
                               uint64_t tensors_begin, uint64_t arena_bytes, struct gemm_extent *out,
                               struct error *error) {
  enum status status = gemm_weight_check(weight, error);
  if (status != STATUS_OK)
    return status;
  if (product->m < 1 || product->m > LIMIT_M)
    return error_field(error, STATUS_INVALID, FIELD_M, product->m, 1, LIMIT_M);
  if (product->n != weight->n)
    return error_field(error, STATUS_INVALID, FIELD_N, product->n, weight->n, weight->n);
  if (product->k != weight->k)
    return error_field(error, STATUS_INVALID, FIELD_K, product->k, weight->k, weight->k);
  if (weight->input != 0 && gemm_type_bytes(product->x_type) == 1)
    return error_set(error, STATUS_UNSUPPORTED, "x comes as codes, and the weight changes x before codes are made");
  if ((status = check_types(product, weight->format, error)) != STATUS_OK ||
      (status = check_choice(product, weight, error)) != STATUS_OK)
    return status;

  /* With all of M, M * T, N, K at most 2^24 no product of two of them and an element's size leaves 64 bits; nor does
   * E * N. */
  const struct gemm_choice *choice = &product->choice;
  int64_t x_rows = gemm_x_rows(product->m, choice), y_rows = gemm_y_rows(product->m, choice);
  uint64_t pairs = (uint64_t)(product->m * choice->top);
  uint64_t m = (uint64_t)product->m, n = (uint64_t)product->n, k = (uint64_t)product->k;
  uint32_t x_element = gemm_type_bytes(product->x_type), y_element = gemm_type_bytes(product->y_type);
  struct gemm_extent extent = {
      .x_stride = product->x_stride,
      .y_stride = product->y_stride,
      .x_row_bytes = k * x_element,
      .y_row_bytes = n * y_element,
      .bias_bytes = n * (uint64_t)gemm_matrices(weight) * gemm_type_bytes(product->bias_type),
      .ids_bytes = pairs * sizeof(int32_t),
      .routing_bytes = choice->routed ? pairs * sizeof(float) : 0,
  };
  if (x_element == 1 && product->y_type != GEMM_S32)
    extent.x_scale_bytes = m * gemm_x_scale_columns(weight) * sizeof(float);
  if ((status = place_stride(x_rows, extent.x_row_bytes, x_element, FIELD_X_STRIDE, &extent.x_stride, &extent.x_bytes,
                             error)) != STATUS_OK ||
      (status = place_stride(y_rows, extent.y_row_bytes, y_element, FIELD_Y_STRIDE, &extent.y_stride, &extent.y_bytes,
                             error)) != STATUS_OK ||
      (status = check_places(product, tensors_begin, arena_bytes, &extent, error)) != STATUS_OK ||
      (status = check_choice_places(product, &extent, tensors_begin, arena_bytes, error)) != STATUS_OK)
    return status;
  *out = extent;
  return STATUS_OK;
}

enum status gemm_tensor_weight(const struct gemm_product *product, struct gemm_weight *out, struct error *error) {
  if (product->x_type != GEMM_F16 && product->x_type != GEMM_BF16) {
    error_field(error, STATUS_UNSUPPORTED, FIELD_X_TYPE, product->x_type, 1, 0);
    gemm_error_compose(error);
    return error->status;
  }
  *out = (struct gemm_weight){.n = product->n,
                              .k = product->k,
                              .format = product->x_type == GEMM_F16 ? GEMM_FORMAT_F16 : GEMM_FORMAT_BF16,
                              .scale = GEMM_SCALE_NONE};
  return STATUS_OK;
}

enum status gemm_tensors_check(const struct gemm_product *product, uint64_t w_offset, uint64_t *w_stride,
                               uint64_t tensors_begin, uint64_t arena_bytes, struct gemm_extent *out,
                               struct error *error) {
  struct gemm_weight weight;
  uint64_t w_bytes = 0;
  enum status status = gemm_tensor_weight(product, &weight, error);
  if (status == STATUS_OK)
    status = gemm_product_check(product, &weight, tensors_begin, arena_bytes, out, error);
  if (status == STATUS_OK)
    status = place_stride(weight.n, (uint64_t)weight.k * 2, 2, FIELD_W_STRIDE, w_stride, &w_bytes, error);
  bool own = product->w_tensor != 0;
  if (status == STATUS_OK)
    status = place_check(w_offset, w_bytes, own ? 0 : tensors_begin, own ? product->w_tensor_bytes : arena_bytes,
                         FIELD_W_OFFSET, error);
  if (status == STATUS_OK && product->y_tensor == product->w_tensor &&
      place_overlap(product->y_offset, out->y_bytes, w_offset, w_bytes)) {
    status = error_field(error, STATUS_INVALID, FIELD_W_OFFSET, place_signed(w_offset), 1, 0);
    gemm_error_compose(error);
  }
  return status;
}

void gemm_error_compose(struct error *error) {
  bool typed = error->field == FIELD_X_TYPE || error->field == FIELD_Y_TYPE || error->field == FIELD_BIAS_TYPE;
  bool apart = error->field == FIELD_Y_OFFSET && error->low == 1 && error->high == 0;
  if (typed && error->status == STATUS_UNSUPPORTED)
    snprintf(error->text, sizeof error->text, "%s %s (%" PRId64 ") is not supported with this weight",
             field_text(error->field),
             error->value < 0 || error->value > UINT8_MAX ? "unknown" : gemm_type_name((enum gemm_type)error->value),
             error->value);
  else if (apart && error->status == STATUS_INVALID)
    snprintf(error->text, sizeof error->text, "y offset %" PRId64 ": y overlaps x, bias or x scale", error->value);
  else if ((error->field == FIELD_IDS_OFFSET || error->field == FIELD_ROUTING_OFFSET) && error->low == 1 &&
           error->high == 0 && error->status == STATUS_INVALID)
    snprintf(error->text, sizeof error->text, "%s %" PRId64 ": y overlaps them", field_text(error->field),
             error->value);
  else if (error->field == FIELD_W_OFFSET && error->low == 1 && error->high == 0 && error->status == STATUS_INVALID)
    snprintf(error->text, sizeof error->text, "w offset %" PRId64 ": W overlaps y", error->value);
  else
    error_compose(error);
}
