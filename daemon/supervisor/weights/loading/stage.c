#include "stage.h"

#include "../../../list.h"
#include "../../context.h"
#include "../pins.h"
#include "../reclaim.h"
#include "../store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct catalog_wish wish_of(const struct stage_item *item) {
  struct catalog_wish wish = item->wish;
  wish.name = item->name;
  return wish;
}

static const struct stage_item *find(const struct stage *stage, const char *name) {
  for (size_t i = 0; i < stage->count; i++)
    if (strcmp(stage->items[i].name, name) == 0)
      return &stage->items[i];
  return NULL;
}

enum status stage_add(struct stage *stage, const struct catalog_wish *wish, struct catalog_weight *weight,
                      struct error *error) {
  const struct stage_item *there = find(stage, wish->name);
  if (there != NULL && there->weight != weight)
    return error_set(error, STATUS_EXISTS, "the name \"%.160s\" is staged for other content", wish->name);
  if (there != NULL)
    return STATUS_OK;
  if (stage->count == LIMIT_SESSION_WEIGHTS)
    return error_set(error, STATUS_TOO_LARGE, "a session may have %u weights staged", LIMIT_SESSION_WEIGHTS);
  enum status status =
      list_grow(&stage->items, stage->count, &stage->capacity, sizeof *stage->items, "another staged weight", error);
  if (status != STATUS_OK)
    return status;
  struct stage_item *item = &stage->items[stage->count++];
  *item = (struct stage_item){.wish = *wish, .weight = weight};
  snprintf(item->name, sizeof item->name, "%s", wish->name);
  weight->handles++;
  return STATUS_OK;
}

void stage_drop(struct supervisor *supervisor, struct stage *stage) {
  for (size_t i = 0; i < stage->count; i++)
    reclaim_handle(supervisor, stage->items[i].weight);
  free(stage->items);
  *stage = (struct stage){.count = 0};
}

/* ---- names */

/* What a name stood for before it was given. */
struct before {
  struct catalog_weight *weight; /* NULL: nothing, or the same */
  bool there;
};

/* Takes back what has been named. */
static void unname_all(struct catalog *catalog, const struct stage *stage, const struct before *before, size_t count) {
  for (size_t i = count; i-- > 0;) {
    struct catalog_wish wish = wish_of(&stage->items[i]);
    struct catalog_weight *weight;
    struct error ignored;
    wish.replace = true;
    wish.user.admin = true; /* it was the user's right before */
    if (before[i].weight != NULL)
      (void)(catalog_name(catalog, &wish, before[i].weight, &weight, &ignored) == STATUS_OK);
    else if (!before[i].there)
      (void)(catalog_unname(catalog, wish.name, wish.user, &weight, &ignored) == STATUS_OK);
  }
}

static enum status name_all(struct catalog *catalog, const struct stage *stage, struct before *before,
                            struct error *error) {
  for (size_t i = 0; i < stage->count; i++) {
    struct catalog_wish wish = wish_of(&stage->items[i]);
    before[i].there = catalog_find(catalog, wish.name) != NULL;
    enum status status = catalog_name(catalog, &wish, stage->items[i].weight, &before[i].weight, error);
    if (status == STATUS_OK)
      continue;
    unname_all(catalog, stage, before, i);
    return status;
  }
  return STATUS_OK;
}

/* Weights that lost their last name. Several names may have stood for one. */
static void reclaim_before(struct supervisor *supervisor, struct before *before, size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct catalog_weight *weight = before[i].weight;
    if (weight == NULL || !catalog_unused(weight))
      continue;
    for (size_t j = i; j < count; j++)
      if (before[j].weight == weight)
        before[j].weight = NULL;
    reclaim_weight(supervisor, weight, NULL, NULL);
  }
}

static enum status check_all(const struct catalog *catalog, const struct stage *stage, struct error *error) {
  for (size_t i = 0; i < stage->count; i++) {
    struct catalog_wish wish = wish_of(&stage->items[i]);
    const struct catalog_weight *weight = stage->items[i].weight;
    enum status status = catalog_may_name(catalog, &wish, weight->hash, weight, error);
    if (status != STATUS_OK)
      return status;
    if (!catalog_may_share(catalog, weight, catalog_class_wished(catalog, &wish)))
      return error_set(error, STATUS_BUSY, "the name \"%.160s\" has changed hands during the load", wish.name);
  }
  return STATUS_OK;
}

static void drop_name(struct supervisor *supervisor, struct catalog_user user, size_t at) {
  struct catalog *catalog = &supervisor->catalog;
  struct catalog_weight *weight;
  struct error error;
  if (catalog_unname(catalog, catalog->names[at].text, user, &weight, &error) == STATUS_OK && catalog_unused(weight))
    reclaim_weight(supervisor, weight, NULL, NULL);
}

static uint32_t drop_others(struct supervisor *supervisor, const struct stage *stage, struct catalog_user user,
                            const char *instead_of) {
  struct catalog *catalog = &supervisor->catalog;
  size_t length = strlen(instead_of);
  uint32_t dropped = 0;
  for (size_t i = length > 0 ? catalog->name_count : 0; i-- > 0;) {
    const struct catalog_name *name = &catalog->names[i];
    bool may = user.admin || user.uid == name->owner;
    if (!may || strncmp(name->text, instead_of, length) != 0 || find(stage, name->text) != NULL)
      continue;
    drop_name(supervisor, user, i);
    dropped++;
  }
  return dropped;
}

enum status stage_commit(struct supervisor *supervisor, struct stage *stage, struct catalog_user user,
                         const char *instead_of, uint32_t *dropped, struct error *error) {
  struct before *before = calloc(stage->count + 1, sizeof *before);
  if (before == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the names");
  enum status status = check_all(&supervisor->catalog, stage, error);
  if (status == STATUS_OK)
    status = name_all(&supervisor->catalog, stage, before, error);
  if (status == STATUS_OK) {
    for (size_t i = 0; i < stage->count; i++)
      pins_apply(supervisor, stage->items[i].weight);
    reclaim_before(supervisor, before, stage->count);
    *dropped = drop_others(supervisor, stage, user, instead_of);
    store_catalog(supervisor);
    stage_drop(supervisor, stage);
  }
  free(before);
  return status;
}
