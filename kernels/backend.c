#include "backend.h"

#include <stdio.h>
#include <string.h>

extern const struct backend_ops cpu_backend;
#ifdef GEMMD_CUDA
extern const struct backend_ops cuda_backend;
#endif

const struct backend_ops *const backend_table[] = {
#ifdef GEMMD_CUDA
    &cuda_backend,
#endif
    &cpu_backend,
    NULL,
};

/* The first of the table with a device. What the last one before it lacked is left in *error, its name in *refused. */
static const struct backend_ops *first_usable(const struct backend_config *config, const char **refused,
                                              struct error *error) {
  for (int i = 0; backend_table[i] != NULL; i++) {
    if (backend_table[i]->devices(config, error) > 0) {
      return backend_table[i];
    }
    *refused = backend_table[i]->name;
  }
  return NULL;
}

enum status backend_takes(const struct backend_ops *ops, enum gemm_format format, struct error *error) {
  char others[64] = "";
  if (ops->formats & 1u << format) {
    return STATUS_OK;
  }
  for (size_t i = 0, used = 0; backend_table[i] != NULL && used < sizeof others; i++) {
    if (backend_table[i]->formats & 1u << format) {
      used += (size_t)snprintf(others + used, sizeof others - used, "%s%s", used > 0 ? ", " : "; it is for ",
                               backend_table[i]->name);
    }
  }
  return error_set(error, STATUS_UNSUPPORTED, "backend %s has no kernels for weights of format %s%s", ops->name,
                   gemm_format_name(format), others);
}

const struct backend_ops *backend_choose(const char *name, const struct backend_config *config, char *reason,
                                         size_t reason_bytes, struct error *error) {
  if (strcmp(name, "auto") == 0) {
    struct error why = {0};
    const char *refused = NULL;
    const struct backend_ops *ops = first_usable(config, &refused, &why);
    if (ops == NULL) {
      *error = why;
    } else if (refused != NULL) {
      snprintf(reason, reason_bytes, "%s has no usable device: %s", refused, why.text);
    } else {
      snprintf(reason, reason_bytes, "the best of this build with a usable device");
    }
    return ops;
  }
  for (int i = 0; backend_table[i] != NULL; i++) {
    if (strcmp(backend_table[i]->name, name) == 0) {
      if (backend_table[i]->devices(config, error) <= 0) {
        return NULL;
      }
      snprintf(reason, reason_bytes, "asked for by name");
      return backend_table[i];
    }
  }
  error_set(error, STATUS_UNSUPPORTED, "backend %s is not in this build", name);
  return NULL;
}
