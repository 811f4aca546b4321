#include "onednn.h"

#ifdef ONEDNN

#include <dlfcn.h>
#include <stdbool.h>

static bool find_functions(struct onednn *onednn) {
  bool found = true;
#define FIND(member, symbol)                                                                                           \
  *(void **)&onednn->member = dlsym(onednn->handle, symbol);                                                           \
  found = found && onednn->member != NULL;
#define ROW(name) FIND(name, "dnnl_" #name)
  ONEDNN_FUNCTIONS(ROW)
#undef ROW
  FIND(omp_set_num_threads, "omp_set_num_threads")
#undef FIND
  return found;
}

enum status onednn_open(const char *path, struct onednn *out, struct error *error) {
  *out = (struct onednn){.handle = dlopen(path != NULL ? path : "libdnnl.so.2", RTLD_NOW | RTLD_LOCAL)};
  if (out->handle == NULL) {
    return error_set(error, STATUS_UNSUPPORTED, "oneDNN cannot be opened: %s", dlerror());
  }
  if (!find_functions(out) || out->engine_create(&out->engine, dnnl_cpu, 0) != dnnl_success) {
    onednn_close(out);
    return error_set(error, STATUS_UNSUPPORTED, "oneDNN does not start");
  }
  return STATUS_OK;
}

void onednn_close(struct onednn *onednn) {
  if (onednn->engine != NULL) {
    onednn->engine_destroy(onednn->engine);
  }
  if (onednn->handle != NULL) {
    dlclose(onednn->handle);
  }
  *onednn = (struct onednn){.handle = NULL};
}

#else
/* An empty file is no C. */
typedef int onednn_is_absent;
#endif
