#include "plan.h"
#include "experts.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 8 };

/* ---- what the model has */

static enum status add_item(struct model_plan *plan, const struct import_weight *weight, const struct error *cause,
                            struct error *error) {
  if (plan->count == plan->capacity) {
    size_t more = plan->capacity == 0 ? 64 : plan->capacity * 2;
    struct model_item *grown = realloc(plan->items, more * sizeof *grown);
    if (grown == NULL)
      return error_set(error, STATUS_NOMEM, "no memory for the list of weights");
    plan->items = grown;
    plan->capacity = more;
  }
  struct model_item *item = &plan->items[plan->count];
  *item = (struct model_item){.error = *cause};
  item->pieces[0] = malloc(sizeof *weight);
  if (item->pieces[0] == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the list of weights");
  *item->pieces[0] = *weight;
  item->count = 1;
  item->experts = weight->experts;
  memcpy(item->base, weight->name, sizeof item->base);
  item->bytes = weight->tensor->tensor->end - weight->tensor->tensor->begin;
  plan->count++;
  return STATUS_OK;
}

static bool matches(const char *const *patterns, unsigned count, const char *name) {
  for (unsigned i = 0; i < count; i++)
    if (fnmatch(patterns[i], name, 0) == 0)
      return true;
  return false;
}

static enum status list_weights(const struct model_files *files, const gemmd_model *wanted, struct model_plan *plan,
                                bool *pattern_hit, bool *exclude_hit, struct error *error) {
  for (size_t i = 0; i < files->model.count; i++) {
    struct import_weight weight;
    struct error cause = {.status = STATUS_OK};
    if (import_take(&files->model, &files->model.entries[i], NULL, &weight, &cause) != IMPORT_WEIGHT)
      continue;
    bool in = wanted->pattern_count == 0;
    for (unsigned j = 0; j < wanted->pattern_count; j++)
      if (fnmatch(wanted->patterns[j], weight.name, 0) == 0)
        in = pattern_hit[j] = true;
    for (unsigned j = 0; j < wanted->exclude_count; j++)
      if (fnmatch(wanted->excludes[j], weight.name, 0) == 0)
        exclude_hit[j] = true;
    if (!in || matches(wanted->excludes, wanted->exclude_count, weight.name))
      continue;
    enum status status = add_item(plan, &weight, &cause, error);
    if (status != STATUS_OK)
      return status;
  }
  return STATUS_OK;
}

static enum status check_hits(const char *const *patterns, const bool *hit, unsigned count, const char *what,
                              struct error *error) {
  for (unsigned i = 0; i < count; i++)
    if (!hit[i])
      return error_set(error, STATUS_NOT_FOUND, "no weight of the model matches the %s '%s'", what,
                       IMPORT_SHOW(patterns[i]));
  return STATUS_OK;
}

static enum status select_weights(const struct model_files *files, const gemmd_model *wanted, struct model_plan *plan,
                                  struct error *error) {
  bool *hits = calloc((size_t)wanted->pattern_count + wanted->exclude_count + 1, sizeof *hits);
  if (hits == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for patterns");
  enum status status = list_weights(files, wanted, plan, hits, hits + wanted->pattern_count, error);
  if (status == STATUS_OK)
    status = check_hits(wanted->patterns, hits, wanted->pattern_count, "pattern", error);
  if (status == STATUS_OK)
    status = check_hits(wanted->excludes, hits + wanted->pattern_count, wanted->exclude_count, "exclusion", error);
  if (status == STATUS_OK && plan->count == 0)
    status = error_set(error, STATUS_NOT_FOUND, "there is no weight to load");
  free(hits);
  return status;
}

/* ---- fusing */

/* "model.layers.0.mlp." "up_proj" ".weight" */
struct parted {
  size_t prefix, name; /* bytes */
  const char *suffix;
};

static struct parted part_name(const char *text) {
  const char *last = strrchr(text, '.');
  size_t end = last != NULL ? (size_t)(last - text) : strlen(text), begin = end;
  while (begin > 0 && text[begin - 1] != '.')
    begin--;
  return (struct parted){.prefix = begin, .name = end - begin, .suffix = text + end};
}

struct fuse {
  const char *names[PIECES];
  size_t lengths[PIECES], count;
  const char *to;
};

static enum status parse_fuse(const char *text, struct fuse *out, struct error *error) {
  const char *end = strchr(text, '='), *at = text;
  *out = (struct fuse){.to = end != NULL ? end + 1 : ""};
  while (end != NULL && at < end && out->count < PIECES) {
    size_t length = strcspn(at, ",=");
    out->names[out->count] = at;
    out->lengths[out->count++] = length;
    at += length + 1;
    if (length == 0)
      break;
  }
  bool good = end != NULL && at > end && out->count >= 2 && out->to[0] != '\0' && strpbrk(out->to, ",=.") == NULL &&
              strpbrk(text, ".*?[") == NULL && out->lengths[out->count - 1] > 0;
  return good ? STATUS_OK
              : error_set(error, STATUS_INVALID, "a fuse is NAME,NAME=NAME, of 2..%d names, got '%s'", PIECES,
                          IMPORT_SHOW(text));
}

/* The item with the same prefix and suffix as `like` whose name is the fuse's; NULL: there is none. */
static struct model_item *find_item(struct model_plan *plan, const char *like, const struct fuse *fuse, size_t which) {
  char name[2 * LIMIT_NAME_BYTES];
  struct parted parted = part_name(like);
  snprintf(name, sizeof name, "%.*s%.*s%s", (int)parted.prefix, like, (int)fuse->lengths[which], fuse->names[which],
           parted.suffix);
  for (size_t i = 0; i < plan->count; i++)
    if (plan->items[i].count > 0 && strcmp(plan->items[i].base, name) == 0)
      return &plan->items[i];
  return NULL;
}

/* The others become part of `first`, and are left with no pieces. */
static enum status fuse_items(struct model_plan *plan, struct model_item *first, const struct fuse *fuse,
                              struct error *error) {
  struct parted parted = part_name(first->base);
  char name[2 * LIMIT_NAME_BYTES];
  for (size_t i = 1; i < fuse->count; i++) {
    struct model_item *item = find_item(plan, first->base, fuse, i);
    if (item == NULL)
      return error_set(error, STATUS_NOT_FOUND, "'%s' cannot be fused: there is no %.*s beside it",
                       IMPORT_SHOW(first->base), (int)fuse->lengths[i], fuse->names[i]);
    if (item->count != 1 || first->count == PIECES)
      return error_set(error, STATUS_INVALID, "'%s' is fused twice", IMPORT_SHOW(item->base));
    first->pieces[first->count++] = item->pieces[0];
    first->bytes += item->bytes;
    item->count = 0;
    if (first->error.status == STATUS_OK)
      first->error = item->error;
  }
  snprintf(name, sizeof name, "%.*s%s%s", (int)parted.prefix, first->base, fuse->to, parted.suffix);
  if (strlen(name) >= sizeof first->base)
    return error_set(error, STATUS_INVALID, "the name '%s' is too long", IMPORT_SHOW(name));
  strcpy(first->base, name);
  return STATUS_OK;
}

static enum status apply_fuse(struct model_plan *plan, const char *text, struct error *error) {
  struct fuse fuse;
  bool any = false;
  enum status status = parse_fuse(text, &fuse, error);
  for (size_t i = 0; status == STATUS_OK && i < plan->count; i++) {
    struct model_item *item = &plan->items[i];
    struct parted parted = part_name(item->base);
    bool is_first = item->count == 1 && parted.name == fuse.lengths[0] &&
                    memcmp(item->base + parted.prefix, fuse.names[0], parted.name) == 0;
    if (!is_first)
      continue;
    any = true;
    status = fuse_items(plan, item, &fuse, error);
  }
  if (status == STATUS_OK && !any)
    status = error_set(error, STATUS_NOT_FOUND, "no weight of the model is named as '%s' says", IMPORT_SHOW(text));
  return status;
}

/* ---- what each becomes */

static enum status apply_rule(struct model_item *item, const gemmd_model *wanted, bool *hit, struct error *error) {
  const gemmd_model_rule *rule = NULL;
  for (unsigned i = 0; i < wanted->rule_count; i++) {
    if (fnmatch(wanted->rules[i].pattern, item->base, 0) != 0)
      continue;
    hit[i] = true;
    rule = rule == NULL ? &wanted->rules[i] : rule;
  }
  if (rule == NULL)
    return error_set(error, STATUS_INVALID, "no rule says what '%s' is to become", IMPORT_SHOW(item->base));
  const struct import_weight *first = item->pieces[0];
  item->format = rule->format != 0 ? (enum gemm_format)rule->format : first->format;
  item->scale = (uint32_t)rule->scale;
  item->method = (uint32_t)rule->method;
  if (item->error.status != STATUS_OK)
    return STATUS_OK;
  if (item->format == GEMM_FORMAT_NONE)
    (void)error_set(&item->error, STATUS_UNSUPPORTED,
                    "tensor '%s' is %s, which no format holds as it is: name one for it, as int8",
                    IMPORT_SHOW(item->base), safetensors_dtype_name(first->tensor->tensor->dtype));
  else if (!first->real && !gemm_stored_alike(item->format, first->format))
    (void)error_set(&item->error, STATUS_UNSUPPORTED, "tensor '%s' is %s, quantized already; it loads as %s, not as %s",
                    IMPORT_SHOW(item->base), safetensors_dtype_name(first->tensor->tensor->dtype),
                    gemm_format_name(first->format), gemm_format_name(item->format));
  return STATUS_OK;
}

static enum status apply_rules(struct model_plan *plan, const gemmd_model *wanted, struct error *error) {
  bool *hit = calloc((size_t)wanted->rule_count + 1, sizeof *hit);
  enum status status = hit != NULL ? STATUS_OK : error_set(error, STATUS_NOMEM, "no memory for rules");
  for (size_t i = 0; status == STATUS_OK && i < plan->count; i++)
    status = apply_rule(&plan->items[i], wanted, hit, error);
  for (unsigned i = 0; status == STATUS_OK && i < wanted->rule_count; i++)
    if (!hit[i])
      status = error_set(error, STATUS_NOT_FOUND, "no weight of the model matches the rule '%s'",
                         IMPORT_SHOW(wanted->rules[i].pattern));
  free(hit);
  return status;
}

static bool by_columns(const gemmd_model *wanted, const char *name) {
  static const char *const usual[] = {"*.o_proj.weight", "*.down_proj.weight"};
  return wanted->column_count > 0 ? matches(wanted->columns, wanted->column_count, name) : matches(usual, 2, name);
}

static int compare_items(const void *left, const void *right) {
  const struct model_item *a = *(const struct model_item *const *)left, *b = *(const struct model_item *const *)right;
  return strcmp(a->name, b->name);
}

static enum status check_names(const struct model_plan *plan, struct error *error) {
  const struct model_item **order = malloc((plan->count + 1) * sizeof(struct model_item *));
  enum status status = STATUS_OK;
  if (order == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the list of weights");
  for (size_t i = 0; i < plan->count; i++)
    order[i] = &plan->items[i];
  qsort(order, plan->count, sizeof(struct model_item *), compare_items);
  for (size_t i = 1; status == STATUS_OK && i < plan->count; i++)
    if (strcmp(order[i - 1]->name, order[i]->name) == 0)
      status =
          error_set(error, STATUS_EXISTS, "two weights of the model would be named '%s'", IMPORT_SHOW(order[i]->name));
  free(order);
  return status;
}

static enum status name_items(struct model_plan *plan, const gemmd_model *wanted, struct error *error) {
  const char *prefix = wanted->prefix != NULL ? wanted->prefix : "";
  for (size_t i = 0; i < plan->count; i++) {
    struct model_item *item = &plan->items[i];
    if (strlen(prefix) + strlen(item->base) >= sizeof item->name)
      return error_set(error, STATUS_INVALID, "the name '%s%s' is too long", IMPORT_SHOW(prefix),
                       IMPORT_SHOW(item->base));
    strcpy(item->name, prefix);
    strcat(item->name, item->base);
    item->columns = by_columns(wanted, item->base);
    if (wanted->split_experts && item->experts % wanted->ranks != 0)
      return error_set(error, STATUS_UNSUPPORTED, "'%s' has %u experts, which %u ranks cannot share",
                       IMPORT_SHOW(item->base), item->experts, wanted->ranks);
    plan->bytes += item->bytes;
  }
  return check_names(plan, error);
}

/* Items that became part of others go. */
static void close_gaps(struct model_plan *plan) {
  size_t kept = 0;
  for (size_t i = 0; i < plan->count; i++)
    if (plan->items[i].count > 0)
      plan->items[kept++] = plan->items[i];
  plan->count = kept;
}

static enum status check_readable(const struct model_plan *plan, const gemmd_model *wanted, struct error *error) {
  for (size_t i = 0; !wanted->keep_going && i < plan->count; i++)
    if (plan->items[i].error.status != STATUS_OK) {
      *error = plan->items[i].error;
      return error->status;
    }
  return STATUS_OK;
}

static enum status check_wanted(const gemmd_model *wanted, struct error *error) {
  const char *prefix = wanted->prefix != NULL ? wanted->prefix : "";
  size_t length = strlen(prefix);
  if (wanted->ranks > 0 && wanted->rank >= wanted->ranks)
    return error_set(error, STATUS_INVALID, "rank must be below ranks (%u), got %u", wanted->ranks, wanted->rank);
  if (wanted->split_experts && (wanted->ranks == 0 || !wanted->join_experts))
    return error_set(error, STATUS_INVALID, "experts are split over ranks, of which there are none, or not joined");
  if (wanted->replace && length > 0 && strchr("./:-_", prefix[length - 1]) == NULL)
    return error_set(error, STATUS_INVALID, "a prefix that is replaced must end with one of ./:-_, got '%s'",
                     IMPORT_SHOW(prefix));
  return STATUS_OK;
}

enum status model_plan_make(const struct model_files *files, const gemmd_model *wanted, struct model_plan *plan,
                            struct error *error) {
  *plan = (struct model_plan){.count = 0};
  enum status status = check_wanted(wanted, error);
  if (status == STATUS_OK)
    status = select_weights(files, wanted, plan, error);
  for (unsigned i = 0; status == STATUS_OK && i < wanted->fuse_count; i++)
    status = apply_fuse(plan, wanted->fuses[i], error);
  if (status == STATUS_OK && wanted->join_experts)
    status = model_experts_join(plan, error);
  close_gaps(plan);
  if (status == STATUS_OK)
    status = apply_rules(plan, wanted, error);
  if (status == STATUS_OK)
    status = name_items(plan, wanted, error);
  return status == STATUS_OK ? check_readable(plan, wanted, error) : status;
}

bool model_may_begin(const struct model_item *item, uint64_t bytes_under_way) {
  return bytes_under_way == 0 ||
         (bytes_under_way < MODEL_BYTES_TOGETHER && item->bytes <= MODEL_BYTES_TOGETHER - bytes_under_way);
}

void model_plan_free(struct model_plan *plan) {
  for (size_t i = 0; i < plan->count; i++)
    for (uint32_t j = 0; j < plan->items[i].count; j++)
      free(plan->items[i].pieces[j]);
  free(plan->items);
  *plan = (struct model_plan){.count = 0};
}
