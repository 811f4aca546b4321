#include "cublaslt.h"

#include "toolkit.h"

#include <dlfcn.h>
#include <string.h>

/* Half a gigabyte, which takes 50 ms to open: once open it stays, for who asked whether it is there uses it next. */
static const struct toolkit_library library = {.name = "libcublasLt",
                                               .option = "cublaslt",
                                               .without = "no cuBLASLt",
                                               .flags = RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE};

enum status cublaslt_open(const char *path, struct cublaslt *out, struct error *error) {
  memset(out, 0, sizeof *out);
#define ROW(name) {#name, (void **)&out->name},
  const struct toolkit_function functions[] = {CUBLASLT_FUNCTIONS(ROW)};
#undef ROW
  return toolkit_open(&library, path, functions, sizeof functions / sizeof functions[0], &out->library, error);
}

void cublaslt_close(struct cublaslt *cublaslt) {
  if (cublaslt->library)
    dlclose(cublaslt->library);
  cublaslt->library = NULL;
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
