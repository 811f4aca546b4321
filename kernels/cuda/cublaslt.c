#include "cublaslt.h"

#include "toolkit.h"

#include <dlfcn.h>
#include <string.h>

static void *library_find(const char *path, struct error *error) {
  void *library = toolkit_open(path, "libcublasLt.so", RTLD_LAZY | RTLD_LOCAL);
  if (library)
    return library;
  if (path && *path)
    error_set(error, STATUS_UNSUPPORTED, "cublaslt cannot be opened: %s", dlerror());
  else
    error_set(error, STATUS_UNSUPPORTED,
              "libcublasLt was not found: tried libcublasLt.so.13, libcublasLt.so.12 and /usr/local/cuda; "
              "the option cublaslt names another");
  return NULL;
}

enum status cublaslt_open(const char *path, struct cublaslt *out, struct error *error) {
  memset(out, 0, sizeof *out);
  void *library = library_find(path, error);
  if (!library)
    return error->status;
#define ROW(name)                                                                                                      \
  *(void **)&out->name = dlsym(library, #name);                                                                        \
  if (!out->name) {                                                                                                    \
    dlclose(library);                                                                                                  \
    return error_set(error, STATUS_UNSUPPORTED, "libcublasLt has no %s", #name);                                       \
  }
  CUBLASLT_FUNCTIONS(ROW)
#undef ROW
  out->library = library;
  return STATUS_OK;
}

void cublaslt_close(struct cublaslt *library) {
  if (library->library)
    dlclose(library->library);
  library->library = NULL;
}

enum status cublaslt_check(cublasStatus_t result, const char *doing, struct error *error) {
  switch (result) {
  case CUBLAS_STATUS_SUCCESS:
    return STATUS_OK;
  case CUBLAS_STATUS_NOT_SUPPORTED:
  case CUBLAS_STATUS_INVALID_VALUE:
  case CUBLAS_STATUS_ARCH_MISMATCH:
    return error_set(error, STATUS_UNSUPPORTED, "%s: not supported by cuBLASLt (%d)", doing, (int)result);
  case CUBLAS_STATUS_ALLOC_FAILED:
    return error_set(error, STATUS_NOMEM, "%s: cuBLASLt ran out of memory", doing);
  default:
    return error_set(error, STATUS_INTERNAL, "%s: cuBLASLt failed (%d)", doing, (int)result);
  }
}
