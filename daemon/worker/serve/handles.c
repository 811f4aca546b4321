#include "handles.h"

#include <stdlib.h>
#include <string.h>

struct handles_entry {
  void *weight; /* NULL: free */
  uint32_t handle;
};

struct handles_page {
  struct handles_entry entries[HANDLES_PAGE_ENTRIES];
};

_Static_assert(LIMIT_SESSION_WEIGHTS == 1u << 16, "an index is the lower half of a handle");

void handles_init(struct handles *handles) {
  memset(handles, 0, sizeof *handles);
}

void handles_close(struct handles *handles) {
  for (size_t i = 0; i < HANDLES_PAGES; i++)
    free(handles->pages[i]);
  handles_init(handles);
}

/* The place of a handle's index, whatever generation stands there; NULL where its page was never used. */
static struct handles_entry *entry_at(const struct handles *handles, uint32_t handle) {
  uint32_t index = handle & (LIMIT_SESSION_WEIGHTS - 1);
  struct handles_page *page = handles->pages[index / HANDLES_PAGE_ENTRIES];
  return page != NULL ? &page->entries[index % HANDLES_PAGE_ENTRIES] : NULL;
}

static struct handles_entry *entry_of(const struct handles *handles, uint32_t handle) {
  struct handles_entry *entry = entry_at(handles, handle);
  return entry != NULL && entry->weight != NULL && entry->handle == handle ? entry : NULL;
}

enum status handles_add(struct handles *handles, uint32_t handle, void *weight, struct error *error) {
  uint32_t page = (handle & (LIMIT_SESSION_WEIGHTS - 1)) / HANDLES_PAGE_ENTRIES;
  if (handles->pages[page] == NULL)
    handles->pages[page] = calloc(1, sizeof *handles->pages[page]);
  if (handles->pages[page] == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a handle");
  struct handles_entry *entry = entry_at(handles, handle);
  if (entry->weight != NULL)
    return error_set(error, STATUS_EXISTS, "handle %u is in use", entry->handle);
  *entry = (struct handles_entry){.weight = weight, .handle = handle};
  return STATUS_OK;
}

void *handles_find(const struct handles *handles, uint32_t handle) {
  struct handles_entry *entry = entry_of(handles, handle);
  return entry != NULL ? entry->weight : NULL;
}

void *handles_remove(struct handles *handles, uint32_t handle) {
  struct handles_entry *entry = entry_of(handles, handle);
  if (entry == NULL)
    return NULL;
  void *weight = entry->weight;
  entry->weight = NULL;
  return weight;
}

void *handles_remove_next(struct handles *handles, uint32_t *from) {
  for (; *from < LIMIT_SESSION_WEIGHTS; ++*from) {
    struct handles_entry *entry = entry_at(handles, *from);
    if (entry != NULL && entry->weight != NULL) {
      void *weight = entry->weight;
      entry->weight = NULL;
      return weight;
    }
  }
  return NULL;
}
