#include "catalog.h"

#include "../../list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void catalog_init(struct catalog *catalog) {
  *catalog = (struct catalog){.name_count = 0};
}

void catalog_free(struct catalog *catalog) {
  for (size_t i = 0; i < catalog->name_count; i++)
    free(catalog->names[i].text);
  for (size_t i = 0; i < catalog->weight_count; i++)
    free(catalog->weights[i]);
  for (size_t i = 0; i < catalog->slab_count; i++) {
    extents_free(&catalog->slabs[i]->extents);
    free(catalog->slabs[i]);
  }
  free(catalog->names);
  free(catalog->weights);
  free(catalog->slabs);
  catalog_init(catalog);
}

/* ---- names */

/* Index of the first name that is not less (`above`: that is greater) than `name`. */
static size_t name_bound(const struct catalog *catalog, const char *name, bool above) {
  size_t low = 0, high = catalog->name_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(catalog->names[middle].text, name); /* bytewise: compares unsigned char */
    if (order < 0 || (above && order == 0))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static struct catalog_name *find_name(const struct catalog *catalog, const char *name) {
  size_t at = name_bound(catalog, name, false);
  if (at == catalog->name_count || strcmp(catalog->names[at].text, name) != 0)
    return NULL;
  return &catalog->names[at];
}

const struct catalog_name *catalog_find(const struct catalog *catalog, const char *name) {
  return find_name(catalog, name);
}

size_t catalog_after(const struct catalog *catalog, const char *name) {
  return name_bound(catalog, name, true);
}

static bool may_change(const struct catalog_name *name, struct catalog_user user) {
  return user.admin || user.uid == name->owner;
}

bool catalog_may_use(const struct catalog_name *name, struct catalog_user user) {
  return name->mode == MODE_ALL || may_change(name, user);
}

static enum status foreign(const struct catalog_name *name, struct error *error) {
  return error_set(error, STATUS_PERMISSION, "the name \"%.128s\" belongs to user %u", name->text, name->owner);
}

enum status catalog_look_up(const struct catalog *catalog, const char *name, struct catalog_user user,
                            const struct catalog_name **out, struct error *error) {
  const struct catalog_name *there = find_name(catalog, name);
  if (there == NULL)
    return error_set(error, STATUS_NOT_FOUND, "no weight is named \"%.160s\"", name);
  if (!catalog_may_use(there, user))
    return foreign(there, error);
  *out = there;
  return STATUS_OK;
}

enum status catalog_may_name(const struct catalog *catalog, const struct catalog_wish *wish, const uint8_t *hash,
                             const struct catalog_weight *weight, struct error *error) {
  const struct catalog_name *there = find_name(catalog, wish->name);
  if (wish->mode == MODE_ALL && !wish->user.admin && (there == NULL || there->mode != MODE_ALL))
    return error_set(error, STATUS_PERMISSION, "to load \"%.128s\" for all takes an admin", wish->name);
  if (there == NULL)
    return STATUS_OK;
  bool same = memcmp(there->weight->hash, hash, CATALOG_HASH_BYTES) == 0;
  bool same_mode = wish->mode == MODE_DEFAULT || wish->mode == there->mode;
  if (there->weight == weight && same_mode && catalog_may_use(there, wish->user))
    return STATUS_OK;
  if (!same && !wish->replace && catalog_may_use(there, wish->user))
    return error_set(error, STATUS_EXISTS,
                     "the name \"%.160s\" stands for other content, and to replace it was not asked for", wish->name);
  return may_change(there, wish->user) ? STATUS_OK : foreign(there, error);
}

struct catalog_class catalog_class_of(const struct catalog_name *name) {
  return (struct catalog_class){.owner = name->owner, .mode = name->mode};
}

bool catalog_class_equal(struct catalog_class a, struct catalog_class b) {
  return a.mode == b.mode && (a.mode == MODE_DEFAULT || a.owner == b.owner);
}

static enum message_mode first_mode(const struct catalog_wish *wish) {
  if (wish->mode != MODE_DEFAULT)
    return wish->mode;
  return wish->user.admin ? MODE_ALL : MODE_PRIVATE;
}

struct catalog_class catalog_class_wished(const struct catalog *catalog, const struct catalog_wish *wish) {
  const struct catalog_name *there = find_name(catalog, wish->name);
  struct catalog_class wished = {.owner = wish->user.uid, .mode = first_mode(wish)};
  if (there != NULL)
    wished =
        (struct catalog_class){.owner = there->owner, .mode = wish->mode != MODE_DEFAULT ? wish->mode : there->mode};
  return wished;
}

static enum status insert_name(struct catalog *catalog, const struct catalog_wish *wish, struct catalog_weight *weight,
                               struct error *error) {
  enum status status = list_grow(&catalog->names, catalog->name_count, &catalog->name_capacity, sizeof *catalog->names,
                                 "the catalog", error);
  if (status != STATUS_OK)
    return status;
  char *text = strdup(wish->name);
  if (text == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the catalog");
  size_t at = name_bound(catalog, wish->name, false);
  memmove(&catalog->names[at + 1], &catalog->names[at], (catalog->name_count - at) * sizeof *catalog->names);
  catalog->names[at] =
      (struct catalog_name){.text = text, .owner = wish->user.uid, .mode = first_mode(wish), .weight = weight};
  catalog->name_count++;
  weight->names++;
  return STATUS_OK;
}

enum status catalog_name(struct catalog *catalog, const struct catalog_wish *wish, struct catalog_weight *weight,
                         struct catalog_weight **before, struct error *error) {
  *before = NULL;
  enum status status = catalog_may_name(catalog, wish, weight->hash, weight, error);
  if (status != STATUS_OK)
    return status;
  struct catalog_name *there = find_name(catalog, wish->name);
  if (there == NULL)
    return insert_name(catalog, wish, weight, error);
  if (wish->mode != MODE_DEFAULT)
    there->mode = wish->mode;
  if (there->weight == weight)
    return STATUS_OK;
  *before = there->weight;
  there->weight->names--;
  there->weight = weight;
  weight->names++;
  return STATUS_OK;
}

enum status catalog_unname(struct catalog *catalog, const char *name, struct catalog_user user,
                           struct catalog_weight **weight, struct error *error) {
  struct catalog_name *there = find_name(catalog, name);
  if (there == NULL)
    return error_set(error, STATUS_NOT_FOUND, "no weight is named \"%.160s\"", name);
  if (!may_change(there, user))
    return foreign(there, error);
  *weight = there->weight;
  there->weight->names--;
  free(there->text);
  catalog->name_count--;
  size_t at = (size_t)(there - catalog->names);
  memmove(there, there + 1, (catalog->name_count - at) * sizeof *there);
  return STATUS_OK;
}

uint32_t catalog_move_names(struct catalog *catalog, struct catalog_weight *from, struct catalog_class of,
                            struct catalog_weight *to) {
  uint32_t moved = 0;
  for (size_t i = 0; i < catalog->name_count; i++) {
    struct catalog_name *name = &catalog->names[i];
    if (name->weight != from || !catalog_class_equal(catalog_class_of(name), of))
      continue;
    name->weight = to;
    moved++;
  }
  from->names -= moved;
  to->names += moved;
  return moved;
}

void catalog_describe(const struct catalog_name *name, struct message_weight_info *out) {
  const struct catalog_weight *weight = name->weight;
  *out = (struct message_weight_info){.n = weight->shape.n,
                                      .k = weight->shape.k,
                                      .format = weight->shape.format,
                                      .scale = weight->shape.scale,
                                      .input = weight->shape.input,
                                      .experts = (uint32_t)weight->shape.experts,
                                      .bytes = catalog_weight_bytes(weight),
                                      .references = weight->names,
                                      .owner = name->owner,
                                      .mode = name->mode,
                                      .placement = weight->placement,
                                      .borrows = weight->borrows,
                                      .parts_count = weight->part_count};
  snprintf(out->name, sizeof out->name, "%s", name->text);
  memcpy(out->hash, weight->hash, sizeof out->hash);
  for (uint32_t i = 0; i < weight->part_count; i++)
    out->parts[i] = (struct message_weight_part){
        .device = weight->parts[i].device, .n_begin = weight->parts[i].n_begin, .n_count = weight->parts[i].n_count};
}

/* ---- contents */

/* Index of the first weight of that content whose id is not below `id`, or of what would come behind it. */
static size_t weight_bound(const struct catalog *catalog, const uint8_t *hash, uint32_t id) {
  size_t low = 0, high = catalog->weight_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const struct catalog_weight *weight = catalog->weights[middle];
    int order = memcmp(weight->hash, hash, CATALOG_HASH_BYTES);
    if (order < 0 || (order == 0 && weight->id < id))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

struct catalog_weight *catalog_find_hash(const struct catalog *catalog, const uint8_t *hash,
                                         const struct catalog_weight *before) {
  size_t at = weight_bound(catalog, hash, before != NULL ? before->id + 1 : 0);
  if (at == catalog->weight_count || memcmp(catalog->weights[at]->hash, hash, CATALOG_HASH_BYTES) != 0)
    return NULL;
  return catalog->weights[at];
}

struct catalog_weight *catalog_find_stamp(const struct catalog *catalog, enum catalog_mark mark,
                                          const struct catalog_stamp *stamp, const struct catalog_weight *before) {
  size_t at = before != NULL ? weight_bound(catalog, before->hash, before->id + 1) : 0;
  for (; stamp->known && at < catalog->weight_count; at++) {
    const struct catalog_stamp *there = &catalog->weights[at]->stamps[mark];
    if (there->known && memcmp(there->bytes, stamp->bytes, sizeof stamp->bytes) == 0)
      return catalog->weights[at];
  }
  return NULL;
}

bool catalog_has_old_hash(const struct catalog *catalog) {
  for (size_t i = 0; i < catalog->weight_count; i++)
    if (catalog->weights[i]->hash_kind == CATALOG_HASH_SEQUENTIAL)
      return true;
  return false;
}

struct catalog_weight *catalog_find_id(const struct catalog *catalog, uint32_t id) {
  for (size_t i = 0; i < catalog->weight_count; i++)
    if (catalog->weights[i]->id == id)
      return catalog->weights[i];
  return NULL;
}

uint32_t catalog_next_weight(struct catalog *catalog) {
  return ++catalog->last_weight;
}

static void insert(struct catalog *catalog, struct catalog_weight *weight) {
  size_t at = weight_bound(catalog, weight->hash, weight->id);
  memmove(&catalog->weights[at + 1], &catalog->weights[at], (catalog->weight_count - at) * sizeof(*catalog->weights));
  catalog->weights[at] = weight;
  catalog->weight_count++;
}

static bool take_out(struct catalog *catalog, const struct catalog_weight *weight) {
  size_t at = weight_bound(catalog, weight->hash, weight->id);
  if (at == catalog->weight_count || catalog->weights[at] != weight)
    return false;
  catalog->weight_count--;
  memmove(&catalog->weights[at], &catalog->weights[at + 1], (catalog->weight_count - at) * sizeof(*catalog->weights));
  return true;
}

enum status catalog_add(struct catalog *catalog, const struct catalog_weight *weight, struct catalog_weight **out,
                        struct error *error) {
  enum status status = list_grow(&catalog->weights, catalog->weight_count, &catalog->weight_capacity,
                                 sizeof(struct catalog_weight *), "the catalog", error);
  if (status != STATUS_OK)
    return status;
  struct catalog_weight *copy = malloc(sizeof *copy);
  if (copy == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the catalog");
  *copy = *weight;
  copy->names = copy->handles = 0;
  insert(catalog, copy);
  *out = copy;
  return STATUS_OK;
}

void catalog_disown(struct catalog *catalog, struct catalog_weight *weight) {
  if (!take_out(catalog, weight))
    return;
  memset(weight->hash, 0, sizeof weight->hash); /* of no content, and no other weight's */
  memcpy(weight->hash, &weight->id, sizeof weight->id);
  memset(weight->stamps, 0, sizeof weight->stamps);
  insert(catalog, weight);
}

void catalog_remove(struct catalog *catalog, struct catalog_weight *weight) {
  if (take_out(catalog, weight))
    free(weight);
}

bool catalog_unused(const struct catalog_weight *weight) {
  return weight->names == 0 && weight->handles == 0 && weight->borrows == 0;
}

uint64_t catalog_weight_bytes(const struct catalog_weight *weight) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < weight->part_count; i++)
    bytes += weight->parts[i].bytes;
  return bytes;
}

struct catalog_holding catalog_owner_holds(const struct catalog *catalog, uint32_t owner) {
  struct catalog_holding holding = {.names = 0};
  for (size_t i = 0; i < catalog->name_count; i++) {
    if (catalog->names[i].owner != owner)
      continue;
    holding.names++;
    holding.bytes += catalog_weight_bytes(catalog->names[i].weight);
  }
  return holding;
}

/* ---- slabs */

uint32_t catalog_next_slab(struct catalog *catalog) {
  return ++catalog->last_slab;
}

static size_t slab_index(const struct catalog *catalog, uint32_t id) {
  size_t at = 0;
  while (at < catalog->slab_count && catalog->slabs[at]->id != id)
    at++;
  return at;
}

enum status catalog_slab_add(struct catalog *catalog, uint32_t id, uint32_t device, uint64_t bytes, int fd,
                             struct error *error) {
  enum status status = list_grow(&catalog->slabs, catalog->slab_count, &catalog->slab_capacity,
                                 sizeof(struct catalog_slab *), "the catalog", error);
  if (status != STATUS_OK)
    return status;
  struct catalog_slab *slab = malloc(sizeof *slab);
  if (slab == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the catalog");
  *slab = (struct catalog_slab){.id = id, .device = device, .bytes = bytes, .fd = fd};
  extents_init(&slab->extents, bytes);
  catalog->slabs[catalog->slab_count++] = slab;
  return STATUS_OK;
}

void catalog_slab_remove(struct catalog *catalog, uint32_t id) {
  size_t at = slab_index(catalog, id);
  if (at == catalog->slab_count)
    return;
  extents_free(&catalog->slabs[at]->extents);
  free(catalog->slabs[at]);
  catalog->slab_count--;
  memmove(&catalog->slabs[at], &catalog->slabs[at + 1], (catalog->slab_count - at) * sizeof(*catalog->slabs));
}

struct catalog_slab *catalog_slab_find(const struct catalog *catalog, uint32_t id) {
  size_t at = slab_index(catalog, id);
  return at == catalog->slab_count ? NULL : catalog->slabs[at];
}

static bool lies_in(const struct catalog_weight *weight, uint32_t slab) {
  for (uint32_t i = 0; i < weight->part_count; i++)
    if (weight->parts[i].slab == slab)
      return true;
  return false;
}

/* Whether all names of what lies in the slab are of that class; in one that is lent they always are. */
static bool is_pure(const struct catalog *catalog, uint32_t slab, struct catalog_class of) {
  for (size_t i = 0; i < catalog->name_count; i++)
    if (!catalog_class_equal(catalog_class_of(&catalog->names[i]), of) && lies_in(catalog->names[i].weight, slab))
      return false;
  return true;
}

/* Of a slab that is lent only what never held anything: who was given it may still read what did. Names are looked
 * through only where there is room. */
static enum status take_in(const struct catalog *catalog, struct catalog_slab *slab, uint64_t bytes, uint64_t align,
                           uint64_t *offset, struct error *error) {
  enum status status = extents_take(&slab->extents, slab->lent ? slab->fresh : 0, bytes, align, offset, error);
  if (status != STATUS_OK)
    return status;
  if (slab->of.mode != MODE_DEFAULT && !slab->lent && !is_pure(catalog, slab->id, slab->of)) {
    (void)extents_give(&slab->extents, *offset);
    return STATUS_NOT_FOUND;
  }
  if (*offset + bytes > slab->fresh)
    slab->fresh = *offset + bytes;
  return STATUS_OK;
}

enum status catalog_take(struct catalog *catalog, uint32_t device, struct catalog_class of, uint64_t bytes,
                         uint64_t align, uint32_t *slab, uint64_t *offset, struct error *error) {
  for (size_t i = 0; i < catalog->slab_count; i++) {
    struct catalog_slab *candidate = catalog->slabs[i];
    if (candidate->device != device || !catalog_class_equal(candidate->of, of))
      continue;
    enum status status = take_in(catalog, candidate, bytes, align, offset, error);
    if (status == STATUS_OK)
      *slab = candidate->id;
    if (status != STATUS_NOT_FOUND)
      return status;
  }
  return error_set(error, STATUS_NOT_FOUND, "no slab of device %u has %llu bytes free", device,
                   (unsigned long long)bytes);
}

bool catalog_lendable(const struct catalog *catalog, const struct catalog_weight *weight, struct catalog_class of) {
  for (uint32_t i = 0; i < weight->part_count; i++) {
    const struct catalog_slab *slab = catalog_slab_find(catalog, weight->parts[i].slab);
    if (slab == NULL || slab->of.mode == MODE_DEFAULT || !catalog_class_equal(slab->of, of) ||
        (!slab->lent && !is_pure(catalog, slab->id, of)))
      return false;
  }
  return true;
}

bool catalog_lend(struct catalog *catalog, const struct catalog_weight *weight) {
  bool changed = false;
  for (uint32_t i = 0; i < weight->part_count; i++) {
    struct catalog_slab *slab = catalog_slab_find(catalog, weight->parts[i].slab);
    changed |= !slab->lent;
    slab->lent = true;
  }
  return changed;
}

bool catalog_may_share(const struct catalog *catalog, const struct catalog_weight *weight, struct catalog_class of) {
  for (uint32_t i = 0; i < weight->part_count; i++) {
    const struct catalog_slab *slab = catalog_slab_find(catalog, weight->parts[i].slab);
    if (slab->lent && !catalog_class_equal(slab->of, of))
      return false;
  }
  return true;
}

bool catalog_give(struct catalog *catalog, uint32_t slab, uint64_t offset) {
  struct catalog_slab *there = catalog_slab_find(catalog, slab);
  return there != NULL && extents_give(&there->extents, offset) && there->extents.count == 0;
}

struct catalog_usage catalog_device_usage(const struct catalog *catalog, uint32_t device) {
  struct catalog_usage usage = {.slabs = 0};
  for (size_t i = 0; i < catalog->slab_count; i++) {
    if (catalog->slabs[i]->device != device)
      continue;
    usage.slabs += catalog->slabs[i]->bytes;
    usage.used += catalog->slabs[i]->extents.used;
    usage.lent += catalog->slabs[i]->lent ? catalog->slabs[i]->bytes : 0;
  }
  return usage;
}

uint32_t catalog_split(int64_t n, uint32_t parts, struct catalog_part *out) {
  int64_t rows = (int64_t)gemm_round_up(gemm_ceil_div((uint64_t)n, parts), 128);
  uint32_t count = 0;
  for (int64_t begin = 0; begin < n; begin += rows, count++) {
    out[count].n_begin = begin;
    out[count].n_count = n - begin < rows ? n - begin : rows;
  }
  return count;
}
