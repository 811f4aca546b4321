#include "variant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As many rows as one product may have. */
#define ROWS_MOST ((int64_t)1 << 24)

const struct variant_family variant_plain = {
    .name = "plain",
    .count = 2,
    .parameters = {{"first", "column of y", 0, 1 << 24, 1, 0}, {"columns", "of y; 0: all", 0, 1 << 24, 1, 0}},
};

void variant_plain_columns(const struct variant *variant, int64_t n, int64_t *first, int64_t *count) {
  int64_t asked = variant->values[1];
  *first = variant->values[0] < n ? variant->values[0] : n;
  *count = asked == 0 || asked > n - *first ? n - *first : asked;
}

int64_t variant_bucket(int64_t m) {
  static const int16_t small[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
  for (size_t i = 0; i < sizeof small / sizeof *small; i++)
    if (m <= small[i])
      return small[i];
  int64_t bucket = 1024;
  while (bucket < m && bucket < ROWS_MOST)
    bucket *= 2;
  return bucket;
}

bool variant_problem_equal(const struct variant_problem *a, const struct variant_problem *b) {
  return a->weight.n == b->weight.n && a->weight.k == b->weight.k && a->weight.format == b->weight.format &&
         a->weight.scale == b->weight.scale && a->m == b->m && a->x_type == b->x_type && a->y_type == b->y_type &&
         a->bias_type == b->bias_type && a->weight.experts == b->weight.experts && a->top == b->top &&
         a->tensors.given == b->tensors.given && a->tensors.x_turned == b->tensors.x_turned &&
         a->tensors.w_turned == b->tensors.w_turned && a->tensors.align == b->tensors.align;
}

static const char *bias_name(enum gemm_type type) {
  return type == GEMM_TYPE_NONE ? "none" : gemm_type_name(type);
}

const char *variant_problem_text(const struct variant_problem *problem, char out[VARIANT_TEXT_BYTES]) {
  snprintf(out, VARIANT_TEXT_BYTES, "%s-%s-%" PRId64 "x%" PRId64 "-%s-%s-%s-m%" PRId64,
           gemm_format_name(problem->weight.format), gemm_scale_name(problem->weight.scale), problem->weight.n,
           problem->weight.k, gemm_type_name(problem->x_type), gemm_type_name(problem->y_type),
           bias_name(problem->bias_type), problem->m);
  const struct variant_tensors *tensors = &problem->tensors;
  size_t used = strlen(out);
  if (tensors->given)
    snprintf(out + used, VARIANT_TEXT_BYTES - used, "-%c%c%d", tensors->x_turned ? 'c' : 'r',
             tensors->w_turned ? 'c' : 'r', tensors->align);
  return out;
}

/* Where the sizes begin, behind the scale mode, which may have hyphens and digits in it; NULL: nowhere. */
static const char *find_sizes(const char *text) {
  const char *at = strchr(text, '-');
  while (at != NULL && !(at[1] >= '0' && at[1] <= '9'))
    at = strchr(at + 1, '-');
  return at;
}

enum status variant_problem_parse(const char *text, struct variant_problem *out, struct error *error) {
  char format[8], scale[24], x[8], y[8], bias[8], again[VARIANT_TEXT_BYTES];
  struct variant_problem problem = {.m = 0};
  int used = 0, align = 0, more = 0;
  char by[3] = "";
  const char *sizes = find_sizes(text), *behind = strchr(text, '-');
  if (strlen(text) < VARIANT_TEXT_BYTES && sizes != NULL && sizes > behind &&
      (size_t)(sizes - behind) <= sizeof scale && sscanf(text, "%7[a-z0-9]", format) == 1 &&
      sscanf(sizes, "-%9" SCNd64 "x%9" SCNd64 "-%7[a-z0-9]-%7[a-z0-9]-%7[a-z0-9]-m%9" SCNd64 "%n", &problem.weight.n,
             &problem.weight.k, x, y, bias, &problem.m, &used) == 6) {
    snprintf(scale, sizeof scale, "%.*s", (int)(sizes - behind - 1), behind + 1);
    used += (int)(sizes - text);
  }
  if (used > 0 && sscanf(text + used, "-%2[rc]%2d%n", by, &align, &more) == 2 && strlen(by) == 2) {
    used += more;
    problem.tensors =
        (struct variant_tensors){.given = true, .x_turned = by[0] == 'c', .w_turned = by[1] == 'c', .align = align};
  }
  if (used == 0 || text[used] != '\0')
    return error_set(error, STATUS_INVALID, "not the name of a shape: FORMAT-SCALE-NxK-X-Y-BIAS-mM is expected");
  bool no_bias = strcmp(bias, "none") == 0;
  if (!gemm_format_parse(format, &problem.weight.format) || !gemm_scale_parse(scale, &problem.weight.scale) ||
      !gemm_type_parse(x, &problem.x_type) || !gemm_type_parse(y, &problem.y_type) ||
      (!no_bias && !gemm_type_parse(bias, &problem.bias_type)))
    return error_set(error, STATUS_INVALID, "%.80s names a format, scale mode or type that is not known", text);
  enum status status = gemm_weight_check(&problem.weight, error);
  if (status != STATUS_OK)
    return status;
  bool tensors = problem.tensors.given;
  if (tensors && (!gemm_is_wide(problem.weight.format) || (align != 2 && align != 4 && align != 8 && align != 16)))
    return error_set(error, STATUS_INVALID, "%.80s names tensors that there are not", text);
  if (problem.m < 1 || problem.m > ROWS_MOST || variant_bucket(problem.m) != problem.m ||
      !gemm_takes_x(problem.weight.format, problem.x_type) ||
      !gemm_takes_y(problem.weight.format, problem.x_type, problem.y_type) ||
      strcmp(variant_problem_text(&problem, again), text) != 0)
    return error_set(error, STATUS_INVALID, "%.80s names a combination that is never asked for", text);
  *out = problem;
  return STATUS_OK;
}

struct variant variant_default(const struct variant_family *family) {
  struct variant variant = {.family = family};
  for (size_t i = 0; i < family->count; i++)
    variant.values[i] = family->parameters[i].fallback;
  return variant;
}

bool variant_equal(const struct variant *a, const struct variant *b) {
  return a->family == b->family && memcmp(a->values, b->values, sizeof a->values) == 0;
}

const char *variant_text(const struct variant *variant, char out[VARIANT_TEXT_BYTES]) {
  const struct variant_family *family = variant->family;
  if (family == NULL) {
    snprintf(out, VARIANT_TEXT_BYTES, "none");
    return out;
  }
  size_t used = (size_t)snprintf(out, VARIANT_TEXT_BYTES, "%s", family->name);
  for (size_t i = 0; i < family->count && used < VARIANT_TEXT_BYTES; i++)
    used += (size_t)snprintf(out + used, VARIANT_TEXT_BYTES - used, " %s=%" PRId32, family->parameters[i].name,
                             variant->values[i]);
  return out;
}

/* Place of a parameter, -1 where the family has none of that name. */
static int parameter_named(const struct variant_family *family, const char *name) {
  for (size_t i = 0; i < family->count; i++)
    if (strcmp(family->parameters[i].name, name) == 0)
      return (int)i;
  return -1;
}

static enum status parse_value(const struct variant_family *family, char *word, struct variant *out,
                               struct error *error) {
  char *equals = strchr(word, '=');
  if (equals == NULL)
    return error_set(error, STATUS_INVALID, "NAME=VALUE is expected, got %.40s", word);
  *equals = '\0';
  int place = parameter_named(family, word);
  if (place < 0)
    return error_set(error, STATUS_NOT_FOUND, "kernels of family %s have no %.40s", family->name, word);
  const struct variant_parameter *parameter = &family->parameters[place];
  char *end;
  long long value = strtoll(equals + 1, &end, 10);
  if (end == equals + 1 || *end != '\0')
    return error_set(error, STATUS_INVALID, "%s takes a number, got %.40s", parameter->name, equals + 1);
  if (value < parameter->low || value > parameter->high || (value - parameter->low) % parameter->step != 0)
    return error_set(error, STATUS_INVALID, "%s must be %" PRId32 "..%" PRId32 " in steps of %" PRId32 ", got %lld",
                     parameter->name, parameter->low, parameter->high, parameter->step, value);
  out->values[place] = (int32_t)value;
  return STATUS_OK;
}

/* The first family behind the plain one that has every parameter named in `words`. */
static enum status choose_family(const struct variant_family *const *families, const char *words,
                                 const struct variant_family **out, struct error *error) {
  for (families++; *families != NULL; families++) {
    char copy[VARIANT_TEXT_BYTES], *place = NULL;
    bool all = true;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, " ", &place); word != NULL; word = strtok_r(NULL, " ", &place)) {
      word[strcspn(word, "=")] = '\0';
      all &= parameter_named(*families, word) >= 0;
    }
    if (all) {
      *out = *families;
      return STATUS_OK;
    }
  }
  return error_set(error, STATUS_UNSUPPORTED, "no family of this backend's kernels has all of:%.120s", words);
}

enum status variant_parse(const struct variant_family *const *families, const char *text, struct variant *out,
                          struct error *error) {
  char copy[VARIANT_TEXT_BYTES], *place = NULL;
  if (strlen(text) >= sizeof copy)
    return error_set(error, STATUS_INVALID, "a kernel's name has at most %zu characters", sizeof copy - 1);
  memcpy(copy, text, strlen(text) + 1);
  char *word = strtok_r(copy, " ", &place);
  if (word == NULL)
    return error_set(error, STATUS_INVALID, "a kernel's name is empty");
  const struct variant_family *family = NULL;
  if (strcmp(word, "any") == 0) {
    enum status status = choose_family(families, text + strspn(text, " ") + strlen("any"), &family, error);
    if (status != STATUS_OK)
      return status;
  }
  for (; *families != NULL && family == NULL; families++)
    if (strcmp((*families)->name, word) == 0)
      family = *families;
  if (family == NULL)
    return error_set(error, STATUS_NOT_FOUND, "this backend has no kernels of family %.40s", word);
  struct variant variant = variant_default(family);
  while ((word = strtok_r(NULL, " ", &place)) != NULL) {
    enum status status = parse_value(family, word, &variant, error);
    if (status != STATUS_OK)
      return status;
  }
  *out = variant;
  return STATUS_OK;
}
