#include "cores.h"

#include <string.h>

#if __has_include(<hwloc.h>) && __has_include(<hwloc/autogen/config.h>)
#include <dlfcn.h>
#include <hwloc.h>

/* Opened at run time, so that a machine without it only lacks pinning. */
#define FUNCTIONS(X)                                                                                                   \
  X(topology_init)                                                                                                     \
  X(topology_set_synthetic)                                                                                            \
  X(topology_load)                                                                                                     \
  X(topology_destroy)                                                                                                  \
  X(topology_get_topology_cpuset)                                                                                      \
  X(get_type_depth)                                                                                                    \
  X(get_nbobjs_by_depth)                                                                                               \
  X(get_obj_by_depth)                                                                                                  \
  X(bitmap_alloc)                                                                                                      \
  X(bitmap_free)                                                                                                       \
  X(bitmap_list_sscanf)                                                                                                \
  X(bitmap_isincluded)                                                                                                 \
  X(bitmap_next)

struct hwloc {
  void *library;             /* owned */
  hwloc_topology_t topology; /* owned */
#define POINTER(name) __typeof__(&hwloc_##name) name;
  FUNCTIONS(POINTER)
};

static void hwloc_close(struct hwloc *hwloc) {
  if (hwloc->topology != NULL) {
    hwloc->topology_destroy(hwloc->topology);
  }
  dlclose(hwloc->library);
}

static bool load_functions(struct hwloc *hwloc) {
  bool found = true;
#define LOAD(name)                                                                                                     \
  {                                                                                                                    \
    void *symbol = dlsym(hwloc->library, "hwloc_" #name);                                                              \
    memcpy(&hwloc->name, &symbol, sizeof(symbol));                                                                     \
    found = found && symbol != NULL;                                                                                   \
  }
  FUNCTIONS(LOAD)
  return found;
}

static enum status hwloc_open(const char *synthetic, struct hwloc *out, struct error *error) {
  *out = (struct hwloc){.library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL)};
  if (out->library == NULL) {
    return error_set(error, STATUS_UNSUPPORTED, "cpu_pin needs libhwloc: %s", dlerror());
  }
  if (!load_functions(out) || out->topology_init(&out->topology) != 0 ||
      (synthetic != NULL && out->topology_set_synthetic(out->topology, synthetic) != 0) ||
      out->topology_load(out->topology) != 0) {
    hwloc_close(out);
    return error_set(error, STATUS_UNSUPPORTED, "libhwloc cannot tell what processors there are");
  }
  return STATUS_OK;
}

static void add(struct cpu_cores *cores, int processor) {
  if (processor >= 0 && processor < CPU_SETSIZE && cores->count < CPU_CORES_MOST) {
    cores->processors[cores->count++] = processor;
  }
}

/* The first processor of each core that lies in `within`; NULL: anywhere. */
static void add_cores(const struct hwloc *hwloc, hwloc_const_bitmap_t within, struct cpu_cores *out) {
  int depth = hwloc->get_type_depth(hwloc->topology, HWLOC_OBJ_CORE);
  for (unsigned i = 0; i < hwloc->get_nbobjs_by_depth(hwloc->topology, depth); i++) {
    hwloc_const_bitmap_t core = hwloc->get_obj_by_depth(hwloc->topology, depth, i)->cpuset;
    if (within == NULL || hwloc->bitmap_isincluded(core, within)) {
      add(out, hwloc->bitmap_next(core, -1));
    }
  }
}

static void add_node(const struct hwloc *hwloc, int device, struct cpu_cores *out) {
  int nodes = (int)hwloc->get_nbobjs_by_depth(hwloc->topology, HWLOC_TYPE_DEPTH_NUMANODE);
  unsigned node = (unsigned)(device % (nodes > 0 ? nodes : 1));
  hwloc_obj_t object = hwloc->get_obj_by_depth(hwloc->topology, HWLOC_TYPE_DEPTH_NUMANODE, node);
  if (object == NULL) {
    return;
  }
  add_cores(hwloc, object->cpuset, out);
  out->at_home = true;
  for (int i = hwloc->bitmap_next(object->cpuset, -1); i >= 0 && i < CPU_SETSIZE;
       i = hwloc->bitmap_next(object->cpuset, i)) {
    CPU_SET(i, &out->home);
  }
}

static enum status add_list(const struct hwloc *hwloc, const char *list, struct cpu_cores *out, struct error *error) {
  hwloc_bitmap_t set = hwloc->bitmap_alloc();
  bool known = set != NULL && strspn(list, "0123456789,-") == strlen(list) && hwloc->bitmap_list_sscanf(set, list) == 0;
  bool there = known && hwloc->bitmap_isincluded(set, hwloc->topology_get_topology_cpuset(hwloc->topology));
  for (int i = there ? hwloc->bitmap_next(set, -1) : -1; i >= 0; i = hwloc->bitmap_next(set, i)) {
    add(out, i);
  }
  hwloc->bitmap_free(set);
  if (!known) {
    return error_set(error, STATUS_INVALID, "cpu_pin must be cores, nodes or a list such as 0-3,8, got %.60s", list);
  }
  return there
             ? STATUS_OK
             : error_set(error, STATUS_INVALID, "cpu_pin names a processor that this process may not use: %.60s", list);
}

enum status cpu_cores_choose(const char *pin, int device, const char *synthetic, struct cpu_cores *out,
                             struct error *error) {
  struct hwloc hwloc;
  *out = (struct cpu_cores){.count = 0};
  if (pin == NULL || *pin == 0) {
    return STATUS_OK;
  }
  enum status status = hwloc_open(synthetic, &hwloc, error);
  if (status != STATUS_OK) {
    return status;
  }
  if (strcmp(pin, "cores") == 0) {
    add_cores(&hwloc, NULL, out);
  } else if (strcmp(pin, "nodes") == 0) {
    add_node(&hwloc, device, out);
  } else {
    status = add_list(&hwloc, pin, out, error);
  }
  hwloc_close(&hwloc);
  if (status == STATUS_OK && out->count == 0) {
    return error_set(error, STATUS_UNSUPPORTED, "libhwloc finds no processors for cpu_pin = %.60s", pin);
  }
  return status;
}

#else

enum status cpu_cores_choose(const char *pin, int device, const char *synthetic, struct cpu_cores *out,
                             struct error *error) {
  (void)device, (void)synthetic;
  *out = (struct cpu_cores){.count = 0};
  return pin == NULL || *pin == 0
             ? STATUS_OK
             : error_set(error, STATUS_UNSUPPORTED, "cpu_pin needs libhwloc, which this build has no header of");
}

#endif

void cpu_cores_pin(const struct cpu_cores *cores, int thread) {
  cpu_set_t set;
  if (cores->count > 0) {
    CPU_ZERO(&set);
    CPU_SET(cores->processors[thread % cores->count], &set);
    sched_setaffinity(0, sizeof(set), &set);
  }
}
