#include "catalog_image.h"

#include <blake2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before version 3 nothing could be lent, before version 4 weights had no experts, before version 5 nothing was done to
 * x, before version 6 nobody knew of what a weight had been made. */
enum { IMAGE_VERSION = 6, IMAGE_VERSION_LEAST = 2, IMAGE_HASH_BYTES = 32 };

/* Goes up where the same files, or numbers, and the same request come to be another content: what a gemmd before made
 * of them is not what this one would make. */
enum { IMAGE_RECIPE = 1 };

/* Read by the same machine that wrote them. Records lie one behind the other, without padding between or inside them
 * that is not named; then comes the hash of all that. */
struct image_head {
  char magic[8];
  uint32_t version, slabs, weights, names, last_weight, last_slab;
  char backend[CATALOG_BACKEND_BYTES];
};

/* From version 3 on, behind the head. */
struct image_epoch {
  uint64_t epoch;
};

struct image_slab {
  uint32_t id, device;
  uint64_t bytes;
};

/* From version 3 on, behind each slab. */
struct image_lent {
  uint32_t owner, mode, lent, reserved;
  uint64_t fresh;
};

struct image_weight {
  uint32_t id, format, scale, placement;
  int64_t n, k;
  uint32_t part_count, hash_kind; /* which versions before the tree hash left 0 */
  uint8_t hash[CATALOG_HASH_BYTES];
  struct catalog_part parts[LIMIT_PARTS];
};

/* From version 4 on, behind each weight. */
struct image_experts {
  int64_t experts;
};

/* From version 5 on, behind that. */
struct image_input {
  uint32_t input, reserved;
};

/* From version 6 on, behind that. */
struct image_stamps {
  uint32_t recipe, known; /* a bit for each mark */
  uint8_t bytes[CATALOG_MARKS][CATALOG_HASH_BYTES];
};

struct image_name {
  uint32_t owner, mode;
  uint32_t weight; /* its id */
  char text[LIMIT_NAME_BYTES];
};

static const char image_magic[8] = "gemmdcat";

static void hash_of(const uint8_t *bytes, size_t length, uint8_t hash[IMAGE_HASH_BYTES]) {
  blake2b(hash, bytes, NULL, IMAGE_HASH_BYTES, length, 0);
}

/* ---- writing */

static struct image_weight weight_record(const struct catalog_weight *weight) {
  struct image_weight record;
  memset(&record, 0, sizeof record); /* holes between fields, too */
  record.id = weight->id;
  record.format = weight->shape.format;
  record.scale = weight->shape.scale;
  record.placement = weight->placement;
  record.n = weight->shape.n;
  record.k = weight->shape.k;
  record.part_count = weight->part_count;
  record.hash_kind = weight->hash_kind;
  memcpy(record.hash, weight->hash, sizeof record.hash);
  memcpy(record.parts, weight->parts, weight->part_count * sizeof *weight->parts);
  return record;
}

static struct image_stamps stamps_record(const struct catalog_weight *weight) {
  struct image_stamps record = {.recipe = IMAGE_RECIPE};
  for (int mark = 0; mark < CATALOG_MARKS; mark++)
    if (weight->stamps[mark].known) {
      record.known |= 1u << mark;
      memcpy(record.bytes[mark], weight->stamps[mark].bytes, sizeof record.bytes[mark]);
    }
  return record;
}

static struct image_name name_record(const struct catalog_name *name) {
  struct image_name record;
  memset(&record, 0, sizeof record);
  record.owner = name->owner;
  record.mode = name->mode;
  record.weight = name->weight->id;
  snprintf(record.text, sizeof record.text, "%s", name->text);
  return record;
}

static uint8_t *put(uint8_t *to, const void *record, size_t bytes) {
  memcpy(to, record, bytes);
  return to + bytes;
}

enum status catalog_image_write(const struct catalog *catalog, const char *backend, uint8_t **bytes, size_t *length,
                                struct error *error) {
  struct image_head head = {.version = IMAGE_VERSION,
                            .slabs = (uint32_t)catalog->slab_count,
                            .names = (uint32_t)catalog->name_count,
                            .last_weight = catalog->last_weight,
                            .last_slab = catalog->last_slab};
  memcpy(head.magic, image_magic, sizeof head.magic);
  snprintf(head.backend, sizeof head.backend, "%.15s", backend);
  for (size_t i = 0; i < catalog->weight_count; i++)
    head.weights += catalog->weights[i]->names > 0;
  const struct image_epoch epoch = {.epoch = catalog->epoch};
  *length = sizeof head + sizeof epoch + head.slabs * (sizeof(struct image_slab) + sizeof(struct image_lent)) +
            head.weights * (sizeof(struct image_weight) + sizeof(struct image_experts) + sizeof(struct image_input) +
                            sizeof(struct image_stamps)) +
            head.names * sizeof(struct image_name) + IMAGE_HASH_BYTES;
  *bytes = malloc(*length);
  if (*bytes == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for an image of the catalog");
  uint8_t *at = put(*bytes, &head, sizeof head);
  at = put(at, &epoch, sizeof epoch);
  for (size_t i = 0; i < catalog->slab_count; i++) {
    const struct catalog_slab *slab = catalog->slabs[i];
    struct image_slab record = {.id = slab->id, .device = slab->device, .bytes = slab->bytes};
    struct image_lent lent = {.owner = slab->of.owner, .mode = slab->of.mode, .lent = slab->lent, .fresh = slab->fresh};
    at = put(at, &record, sizeof record);
    at = put(at, &lent, sizeof lent);
  }
  for (size_t i = 0; i < catalog->weight_count; i++) {
    struct image_weight record = weight_record(catalog->weights[i]);
    const struct image_experts experts = {.experts = catalog->weights[i]->shape.experts};
    const struct image_input input = {.input = catalog->weights[i]->shape.input};
    const struct image_stamps stamps = stamps_record(catalog->weights[i]);
    if (catalog->weights[i]->names == 0)
      continue;
    at = put(put(put(at, &record, sizeof record), &experts, sizeof experts), &input, sizeof input);
    at = put(at, &stamps, sizeof stamps);
  }
  for (size_t i = 0; i < catalog->name_count; i++) {
    struct image_name record = name_record(&catalog->names[i]);
    at = put(at, &record, sizeof record);
  }
  hash_of(*bytes, *length - IMAGE_HASH_BYTES, at);
  return STATUS_OK;
}

/* ---- reading */

struct reader {
  const uint8_t *bytes;
  size_t left;
  uint32_t version;
  struct catalog_weight **by_id; /* owned; those that have been read, in order: there may be as many names */
  struct error *error;
};

static enum status bad(struct error *error, const char *why) {
  return error_set(error, STATUS_BAD_FILE, "the catalog that an earlier gemmd left cannot be used: %s", why);
}

static enum status take(struct reader *reader, void *record, size_t bytes) {
  if (reader->left < bytes)
    return bad(reader->error, "it is too short");
  memcpy(record, reader->bytes, bytes);
  reader->bytes += bytes;
  reader->left -= bytes;
  return STATUS_OK;
}

static enum status read_slab(struct reader *reader, struct catalog *catalog) {
  struct image_slab record;
  struct image_lent lent = {.lent = 0};
  enum status status = take(reader, &record, sizeof record);
  if (status == STATUS_OK && reader->version >= 3)
    status = take(reader, &lent, sizeof lent);
  if (status != STATUS_OK)
    return status;
  if (record.id == 0 || record.id > catalog->last_slab || record.device >= LIMIT_DEVICES ||
      catalog_slab_find(catalog, record.id) != NULL)
    return bad(reader->error, "a slab is not one");
  if (lent.mode > MODE_ALL || lent.lent > 1 || (lent.lent && lent.mode == MODE_DEFAULT) || lent.fresh > record.bytes)
    return bad(reader->error, "a slab is lent to nobody");
  status = catalog_slab_add(catalog, record.id, record.device, record.bytes, -1, reader->error);
  if (status != STATUS_OK)
    return status;
  struct catalog_slab *slab = catalog_slab_find(catalog, record.id);
  slab->of = (struct catalog_class){.owner = lent.owner, .mode = (enum message_mode)lent.mode};
  slab->lent = lent.lent != 0;
  slab->fresh = lent.fresh;
  return STATUS_OK;
}

static enum status take_parts(struct catalog *catalog, const struct image_weight *record, struct error *error) {
  if (record->part_count == 0 || record->part_count > LIMIT_PARTS)
    return bad(error, "a weight has no parts");
  for (uint32_t i = 0; i < record->part_count; i++) {
    const struct catalog_part *part = &record->parts[i];
    struct catalog_slab *slab = catalog_slab_find(catalog, part->slab);
    if (slab == NULL || slab->device != part->device || part->n_begin < 0 || part->n_count < 1 ||
        part->n_count > record->n - part->n_begin)
      return bad(error, "a part of a weight lies in no slab");
    if (slab->of.mode != MODE_DEFAULT && (part->offset > slab->fresh || part->bytes > slab->fresh - part->offset))
      return bad(error, "a part of a weight lies where nothing was taken");
    for (uint32_t before = 0; before < i; before++)
      if (record->parts[before].device == part->device)
        return bad(error, "two parts of a weight share a device");
    enum status status = extents_take_at(&slab->extents, part->offset, part->bytes, error);
    if (status != STATUS_OK)
      return bad(error, "two weights share a place");
  }
  return STATUS_OK;
}

static enum status take_stamps(struct reader *reader, struct catalog_weight *weight) {
  struct image_stamps record;
  enum status status = take(reader, &record, sizeof record);
  if (status != STATUS_OK || record.recipe != IMAGE_RECIPE)
    return status;
  if (record.known >> CATALOG_MARKS != 0)
    return bad(reader->error, "a weight is made of nothing known");
  for (int mark = 0; mark < CATALOG_MARKS; mark++) {
    weight->stamps[mark].known = record.known >> mark & 1;
    memcpy(weight->stamps[mark].bytes, record.bytes[mark], sizeof record.bytes[mark]);
  }
  return STATUS_OK;
}

static enum status read_weight(struct reader *reader, struct catalog *catalog) {
  struct image_weight record;
  struct image_input input = {.input = 0};
  struct image_experts experts = {.experts = 0};
  struct catalog_weight *added;
  struct error error;
  enum status status = take(reader, &record, sizeof record);
  if (status == STATUS_OK && reader->version >= 4)
    status = take(reader, &experts, sizeof experts);
  if (status == STATUS_OK && reader->version >= 5)
    status = take(reader, &input, sizeof input);
  if (status != STATUS_OK)
    return status;
  struct catalog_weight weight = {.id = record.id,
                                  .shape = {.n = record.n,
                                            .k = record.k,
                                            .format = (enum gemm_format)record.format,
                                            .scale = (enum gemm_scale)record.scale,
                                            .input = input.input,
                                            .experts = experts.experts},
                                  .placement = (enum message_placement)record.placement,
                                  .part_count = record.part_count,
                                  .hash_kind = record.hash_kind};
  if (gemm_weight_check(&weight.shape, &error) != STATUS_OK || record.id == 0 || record.id > catalog->last_weight ||
      record.placement > PLACEMENT_SPLIT || record.hash_kind > CATALOG_HASH_TREE)
    return bad(reader->error, "a weight is not one");
  if (reader->version >= 6)
    status = take_stamps(reader, &weight);
  if (status == STATUS_OK)
    status = take_parts(catalog, &record, reader->error);
  if (status != STATUS_OK)
    return status;
  memcpy(weight.hash, record.hash, sizeof weight.hash);
  memcpy(weight.parts, record.parts, record.part_count * sizeof *record.parts);
  return catalog_add(catalog, &weight, &added, reader->error);
}

static int compare_ids(const void *a, const void *b) {
  const struct catalog_weight *first = *(struct catalog_weight *const *)a, *second = *(struct catalog_weight *const *)b;
  return (first->id > second->id) - (first->id < second->id);
}

static enum status order_weights(struct reader *reader, const struct catalog *catalog) {
  size_t count = catalog->weight_count;
  reader->by_id = malloc((count > 0 ? count : 1) * sizeof(struct catalog_weight *));
  if (reader->by_id == NULL)
    return error_set(reader->error, STATUS_NOMEM, "no memory for the catalog");
  for (size_t i = 0; i < count; i++)
    reader->by_id[i] = catalog->weights[i];
  qsort(reader->by_id, count, sizeof(struct catalog_weight *), compare_ids);
  for (size_t i = 1; i < count; i++)
    if (reader->by_id[i - 1]->id == reader->by_id[i]->id)
      return bad(reader->error, "two weights share a number");
  return STATUS_OK;
}

static struct catalog_weight *weight_of(const struct reader *reader, const struct catalog *catalog, uint32_t id) {
  const struct catalog_weight wanted = {.id = id}, *key = &wanted;
  struct catalog_weight **found =
      bsearch(&key, reader->by_id, catalog->weight_count, sizeof(struct catalog_weight *), compare_ids);
  return found != NULL ? *found : NULL;
}

static enum status read_name(struct reader *reader, struct catalog *catalog) {
  struct image_name record;
  enum status status = take(reader, &record, sizeof record);
  if (status != STATUS_OK)
    return status;
  struct catalog_weight *weight = weight_of(reader, catalog, record.weight), *before;
  if (weight == NULL || record.text[0] == '\0' || memchr(record.text, '\0', sizeof record.text) == NULL ||
      catalog_find(catalog, record.text) != NULL || record.mode < MODE_PRIVATE || record.mode > MODE_ALL)
    return bad(reader->error, "a name stands for nothing");
  const struct catalog_class of = {.owner = record.owner, .mode = (enum message_mode)record.mode};
  if (!catalog_may_share(catalog, weight, of))
    return bad(reader->error, "a name stands for what is lent as another's");
  const struct catalog_wish wish = {
      .name = record.text, .mode = (enum message_mode)record.mode, .user = {.uid = record.owner, .admin = true}};
  return catalog_name(catalog, &wish, weight, &before, reader->error);
}

static enum status read_all(struct reader *reader, struct catalog *catalog, char *backend) {
  struct image_head head;
  struct image_epoch epoch = {.epoch = 0};
  enum status status = take(reader, &head, sizeof head);
  if (status != STATUS_OK)
    return status;
  if (memcmp(head.magic, image_magic, sizeof head.magic) != 0 || head.version < IMAGE_VERSION_LEAST ||
      head.version > IMAGE_VERSION)
    return bad(reader->error, "it is of another version");
  reader->version = head.version;
  if (head.version >= 3 && (status = take(reader, &epoch, sizeof epoch)) != STATUS_OK)
    return status;
  catalog->epoch = epoch.epoch;
  memcpy(backend, head.backend, CATALOG_BACKEND_BYTES);
  backend[CATALOG_BACKEND_BYTES - 1] = '\0';
  catalog->last_weight = head.last_weight;
  catalog->last_slab = head.last_slab;
  for (uint32_t i = 0; status == STATUS_OK && i < head.slabs; i++)
    status = read_slab(reader, catalog);
  for (uint32_t i = 0; status == STATUS_OK && i < head.weights; i++)
    status = read_weight(reader, catalog);
  if (status == STATUS_OK)
    status = order_weights(reader, catalog);
  for (uint32_t i = 0; status == STATUS_OK && i < head.names; i++)
    status = read_name(reader, catalog);
  for (size_t i = 0; status == STATUS_OK && i < catalog->weight_count; i++)
    if (catalog->weights[i]->names == 0)
      status = bad(reader->error, "a weight has no name");
  return status == STATUS_OK && reader->left > 0 ? bad(reader->error, "it is too long") : status;
}

enum status catalog_image_read(struct catalog *catalog, char backend[CATALOG_BACKEND_BYTES], const uint8_t *bytes,
                               size_t length, struct error *error) {
  uint8_t hash[IMAGE_HASH_BYTES];
  if (length < IMAGE_HASH_BYTES)
    return bad(error, "it is too short");
  size_t body = length - IMAGE_HASH_BYTES;
  hash_of(bytes, body, hash);
  if (memcmp(hash, bytes + body, sizeof hash) != 0)
    return bad(error, "it is damaged");
  struct reader reader = {.bytes = bytes, .left = body, .error = error};
  enum status status = read_all(&reader, catalog, backend);
  free(reader.by_id);
  if (status != STATUS_OK)
    catalog_free(catalog);
  return status;
}
