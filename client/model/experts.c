#include "experts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "model.layers.0.mlp.experts." "17" ".gate_proj.weight" */
struct numbered {
  size_t prefix;      /* bytes before the number */
  const char *suffix; /* behind it */
  uint32_t number;
};

static bool take_number(const char *text, struct numbered *out) {
  static const char behind[] = "experts.";
  for (const char *at = strstr(text, behind); at != NULL; at = strstr(at + 1, behind)) {
    const char *digits = at + sizeof behind - 1;
    size_t length = strspn(digits, "0123456789");
    bool plain = length > 0 && length < 5 && (digits[0] != '0' || length == 1);
    if ((at != text && at[-1] != '.') || !plain || digits[length] != '.')
      continue;
    *out = (struct numbered){
        .prefix = (size_t)(digits - text), .suffix = digits + length, .number = (uint32_t)strtoul(digits, NULL, 10)};
    return true;
  }
  return false;
}

bool model_experts_pattern(const char *name, char pattern[LIMIT_NAME_BYTES]) {
  struct numbered numbered;
  if (!take_number(name, &numbered))
    return false;
  int length = snprintf(pattern, LIMIT_NAME_BYTES, "%.*s{}%s", (int)numbered.prefix, name, numbered.suffix);
  return length > 0 && (size_t)length < LIMIT_NAME_BYTES;
}

/* Experts of one layer stand behind each other, by their numbers. */
static int compare(const void *left, const void *right) {
  const struct model_item *a = *(struct model_item *const *)left, *b = *(struct model_item *const *)right;
  char first[LIMIT_NAME_BYTES], second[LIMIT_NAME_BYTES];
  struct numbered of_a, of_b;
  (void)model_experts_pattern(a->base, first);
  (void)model_experts_pattern(b->base, second);
  int order = strcmp(first, second);
  (void)take_number(a->base, &of_a);
  (void)take_number(b->base, &of_b);
  return order != 0 ? order : (of_a.number > of_b.number) - (of_a.number < of_b.number);
}

/* Tensors of one weight lie in few files. */
static enum status add_files(struct import_weight *to, const struct import_weight *from, struct error *error) {
  for (uint32_t i = 0; i < from->file_count; i++) {
    uint32_t at = 0;
    while (at < to->file_count && to->files[at] != from->files[i])
      at++;
    if (at == IMPORT_FILES)
      return error_set(error, STATUS_UNSUPPORTED, "the experts of '%s' lie in more than %d files",
                       IMPORT_SHOW(to->name), IMPORT_FILES);
    to->files[at] = from->files[i];
    to->file_count = at == to->file_count ? at + 1 : to->file_count;
  }
  return STATUS_OK;
}

/* `item` is expert number `expert` of the weight that `first` is to be. */
static enum status join(struct model_item *first, struct model_item *item, uint32_t expert, struct error *error) {
  struct numbered numbered;
  char pattern[LIMIT_NAME_BYTES];
  (void)take_number(item->base, &numbered);
  (void)model_experts_pattern(item->base, pattern);
  if (numbered.number != expert)
    return error_set(error, STATUS_NOT_FOUND, "expert %u of '%s' is missing", expert, IMPORT_SHOW(pattern));
  if (item->count != first->count)
    return error_set(error, STATUS_UNSUPPORTED, "'%s' is made of %u tensors, another expert of %u",
                     IMPORT_SHOW(item->base), item->count, first->count);
  first->experts++;
  if (item == first)
    return STATUS_OK;
  enum status status = STATUS_OK;
  for (uint32_t i = 0; i < item->count; i++) {
    status = status == STATUS_OK ? add_files(first->pieces[i], item->pieces[i], error) : status;
    free(item->pieces[i]);
  }
  item->count = 0;
  first->bytes += item->bytes;
  if (first->error.status == STATUS_OK)
    first->error = item->error;
  return status;
}

/* "experts.17.gate_proj" as "experts.gate_proj". */
static void drop_number(struct model_item *item) {
  struct numbered numbered;
  if (take_number(item->base, &numbered))
    memmove(item->base + numbered.prefix, numbered.suffix + 1, strlen(numbered.suffix + 1) + 1);
}

static enum status join_all(struct model_item **items, size_t count, struct error *error) {
  char now[LIMIT_NAME_BYTES] = "", pattern[LIMIT_NAME_BYTES];
  struct model_item *first = NULL;
  enum status status = STATUS_OK;
  for (size_t i = 0; status == STATUS_OK && i < count; i++) {
    (void)model_experts_pattern(items[i]->base, pattern);
    if (first == NULL || strcmp(pattern, now) != 0)
      first = items[i];
    strcpy(now, pattern);
    status = join(first, items[i], first->experts, error);
  }
  for (size_t i = 0; i < count; i++)
    if (items[i]->count > 0)
      drop_number(items[i]);
  return status;
}

enum status model_experts_join(struct model_plan *plan, struct error *error) {
  struct model_item **items = malloc((plan->count + 1) * sizeof(struct model_item *));
  char pattern[LIMIT_NAME_BYTES];
  size_t count = 0;
  bool stacked = false;
  if (items == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the list of experts");
  for (size_t i = 0; i < plan->count; i++) {
    stacked = stacked || plan->items[i].experts > 0;
    if (plan->items[i].count > 0 && plan->items[i].experts == 0 && model_experts_pattern(plan->items[i].base, pattern))
      items[count++] = &plan->items[i];
  }
  qsort(items, count, sizeof(struct model_item *), compare);
  enum status status = count > 0 || stacked ? join_all(items, count, error)
                                            : error_set(error, STATUS_NOT_FOUND, "no weight of the model is an expert");
  free(items);
  return status;
}
