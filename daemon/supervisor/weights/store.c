#include "store.h"

#include "../../log.h"
#include "../../memfd.h"
#include "../context.h"
#include "../net/closing.h"
#include "../net/listener.h"
#include "../net/notify.h"
#include "../workers/fleet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLAB_NAME "slab-%" PRIu32
#define IMAGE_NAME "catalog-%" PRIu64

/* ---- parking */

void store_add_slab(uint32_t id, int fd) {
  char state[96];
  /* FDPOLL=0: or systemd would drop a descriptor that polls as if it had hung up, as those of devices may. */
  snprintf(state, sizeof state, "FDSTORE=1\nFDPOLL=0\nFDNAME=" SLAB_NAME, id);
  (void)notify_send_fd(state, fd);
}

void store_remove_slab(uint32_t id) {
  char state[96];
  snprintf(state, sizeof state, "FDSTOREREMOVE=1\nFDNAME=" SLAB_NAME, id);
  notify_send(state);
}

static void remove_image(uint64_t version) {
  char state[96];
  snprintf(state, sizeof state, "FDSTOREREMOVE=1\nFDNAME=" IMAGE_NAME, version);
  notify_send(state);
}

static enum status make_image(struct supervisor *supervisor, int *fd, struct error *error) {
  uint8_t *bytes;
  size_t length;
  enum status status =
      catalog_image_write(&supervisor->catalog, supervisor->fleet->config.backend, &bytes, &length, error);
  if (status != STATUS_OK)
    return status;
  status = memfd_fill("gemmd-catalog", bytes, length, fd, error);
  free(bytes);
  return status;
}

void store_catalog(struct supervisor *supervisor) {
  struct store *store = supervisor->store;
  struct error error;
  char state[96];
  int fd;
  if (!notify_present())
    return;
  store->behind = true;
  if (make_image(supervisor, &fd, &error) != STATUS_OK) {
    log_error("a restart of gemmd would not find the weights as they are: %s", error.text);
    return;
  }
  store->version++;
  snprintf(state, sizeof state, "FDSTORE=1\nFDPOLL=0\nFDNAME=" IMAGE_NAME, store->version);
  bool sent = notify_send_fd(state, fd);
  close(fd);
  if (!sent) /* better an older one than none */
    return;
  if (store->parked != 0)
    remove_image(store->parked);
  store->parked = store->version;
  store->behind = false;
}

bool store_is_current(struct supervisor *supervisor) {
  if (supervisor->store->behind)
    store_catalog(supervisor);
  return !supervisor->store->behind || supervisor->store->parked == 0;
}

/* ---- taking over */

static void drop_slabs(struct catalog *catalog) {
  for (size_t i = 0; i < catalog->slab_count; i++) {
    store_remove_slab(catalog->slabs[i]->id);
    if (catalog->slabs[i]->fd >= 0)
      closing_memory(catalog->slabs[i]->fd);
  }
  catalog_free(catalog);
}

static enum status read_image(struct supervisor *supervisor, int fd, struct error *error) {
  struct stat stat;
  if (fstat(fd, &stat) != 0 || memfd_check(fd, (uint64_t)stat.st_size, true, error) != STATUS_OK)
    return error_set(error, STATUS_BAD_DESCRIPTOR, "what an earlier gemmd left is no sealed memfd");
  void *bytes = memfd_map(fd, (uint64_t)stat.st_size, false, error);
  if (bytes == NULL)
    return error->status;
  enum status status =
      catalog_image_read(&supervisor->catalog, supervisor->store->backend, bytes, (size_t)stat.st_size, error);
  munmap(bytes, (size_t)stat.st_size);
  return status;
}

/* The newest image: there are two where gemmd died between parking one and removing the one before. */
static struct inherited_fd *newest_image(struct inherited *inherited, uint64_t *version) {
  struct inherited_fd *newest = NULL;
  for (size_t i = 0; i < inherited->count; i++) {
    uint64_t number;
    if (sscanf(inherited->list[i].name, IMAGE_NAME, &number) != 1 || inherited->list[i].fd < 0)
      continue;
    if (newest == NULL || number > *version) {
      newest = &inherited->list[i];
      *version = number;
    }
  }
  return newest;
}

static bool lies_in(const struct catalog_weight *weight, uint32_t slab) {
  for (uint32_t i = 0; i < weight->part_count; i++)
    if (weight->parts[i].slab == slab)
      return true;
  return false;
}

/* With all names of these weights, and whatever parts they have elsewhere. Returns how many there were. */
static size_t drop_weights_in(struct catalog *catalog, uint32_t slab) {
  const struct catalog_user root = {.uid = 0, .admin = true};
  size_t before = catalog->weight_count;
  struct catalog_weight *weight;
  struct error error;
  for (size_t i = catalog->name_count; i-- > 0;)
    if (lies_in(catalog->names[i].weight, slab))
      (void)!catalog_unname(catalog, catalog->names[i].text, root, &weight, &error);
  for (size_t i = catalog->weight_count; i-- > 0;) {
    weight = catalog->weights[i];
    if (!lies_in(weight, slab))
      continue;
    for (uint32_t p = 0; p < weight->part_count; p++)
      (void)catalog_give(catalog, weight->parts[p].slab, weight->parts[p].offset);
    catalog_remove(catalog, weight);
  }
  return before - catalog->weight_count;
}

static void take_slabs(struct catalog *catalog, struct inherited *inherited) {
  for (size_t i = 0; i < catalog->slab_count; i++) {
    struct catalog_slab *slab = catalog->slabs[i];
    char name[INHERITED_NAME_BYTES];
    snprintf(name, sizeof name, SLAB_NAME, slab->id);
    slab->fd = inherited_take(inherited, name);
    if (slab->fd >= 0 || slab->extents.count == 0)
      continue;
    size_t dropped = drop_weights_in(catalog, slab->id);
    log_error("slab %u of the catalog that an earlier gemmd left is missing; %zu weight%s in it must be loaded again",
              slab->id, dropped, plural(dropped));
  }
}

/* A slab that nothing lies in: its last weight had lost its name before gemmd ended. Perhaps it was freed, too, and no
 * catalog parked since. */
static void drop_empty_slabs(struct catalog *catalog) {
  for (size_t i = catalog->slab_count; i-- > 0;) {
    struct catalog_slab *slab = catalog->slabs[i];
    if (slab->extents.count > 0)
      continue;
    if (slab->fd >= 0) {
      store_remove_slab(slab->id);
      closing_memory(slab->fd);
    }
    catalog_slab_remove(catalog, slab->id);
  }
}

/* Parked, but of no use to anybody. */
static void forget_rest(struct inherited *inherited, uint64_t kept) {
  for (size_t i = 0; i < inherited->count; i++) {
    uint32_t slab;
    uint64_t version;
    if (inherited->list[i].fd < 0)
      continue;
    if (sscanf(inherited->list[i].name, SLAB_NAME, &slab) == 1)
      store_remove_slab(slab);
    else if (sscanf(inherited->list[i].name, IMAGE_NAME, &version) == 1 && version != kept)
      remove_image(version);
  }
}

void store_choose_epoch(struct catalog *catalog) {
  while (catalog->epoch == 0)
    if (getrandom(&catalog->epoch, sizeof catalog->epoch, 0) != sizeof catalog->epoch)
      catalog->epoch = 0;
}

void store_restore(struct supervisor *supervisor, struct inherited *inherited) {
  struct store *store = supervisor->store;
  struct catalog *catalog = &supervisor->catalog;
  struct inherited_fd *image = newest_image(inherited, &store->version);
  struct error error;
  if (image != NULL) {
    bool good = read_image(supervisor, image->fd, &error) == STATUS_OK;
    if (good)
      take_slabs(catalog, inherited);
    if (!good)
      log_error("%s; weights must be loaded again", error.text);
    else
      log_info("%zu weight%s under %zu name%s taken over from an earlier gemmd", catalog->weight_count,
               plural(catalog->weight_count), catalog->name_count, plural(catalog->name_count));
    drop_empty_slabs(catalog);
  }
  store->parked = store->version;
  forget_rest(inherited, store->version);
}

void store_check(struct supervisor *supervisor) {
  struct catalog *catalog = &supervisor->catalog;
  const struct fleet *fleet = supervisor->fleet;
  bool fits = strcmp(supervisor->store->backend, fleet->config.backend) == 0;
  for (size_t i = 0; i < catalog->slab_count; i++)
    fits &= catalog->slabs[i]->device < fleet->count;
  if (catalog->slab_count == 0 || fits)
    return;
  log_error("weights of an earlier gemmd with backend %s cannot be used by backend %s with %u devices; they must be "
            "loaded again",
            supervisor->store->backend, fleet->config.backend, fleet->count);
  drop_slabs(catalog);
  store_choose_epoch(catalog);
  store_catalog(supervisor);
}

/* ---- to the next program */

enum status store_leave(struct supervisor *supervisor, struct error *error) {
  const struct catalog *catalog = &supervisor->catalog;
  const struct listener *listener = supervisor->listener;
  struct inherited_fd *list = calloc(catalog->slab_count + 3, sizeof *list);
  size_t count = 0;
  int image;
  if (list == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the list of descriptors");
  enum status status = make_image(supervisor, &image, error);
  if (status == STATUS_OK) {
    list[count].fd = image;
    snprintf(list[count++].name, INHERITED_NAME_BYTES, IMAGE_NAME, supervisor->store->version);
    list[count].fd = listener->fd;
    snprintf(list[count++].name, INHERITED_NAME_BYTES, "%s", LISTENER_SOCKET_NAME);
    if (listener->lock >= 0) {
      list[count].fd = listener->lock;
      snprintf(list[count++].name, INHERITED_NAME_BYTES, "%s", LISTENER_LOCK_NAME);
    }
    for (size_t i = 0; i < catalog->slab_count; i++) {
      list[count].fd = catalog->slabs[i]->fd;
      snprintf(list[count++].name, INHERITED_NAME_BYTES, SLAB_NAME, catalog->slabs[i]->id);
    }
    status = inherited_leave(list, count, error);
  }
  free(list);
  return status;
}
