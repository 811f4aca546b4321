/* Libraries of the CUDA toolkit, opened at run time. */
#pragma once

#include "../../../proto/status.h"

struct toolkit_library {
  const char *name;    /* without ".so" and version: "libnvrtc" */
  const char *option;  /* of gemmd.conf, that names another file */
  const char *without; /* what there is not without it, for the reason */
  int flags;           /* dlopen's */
};

struct toolkit_function {
  const char *name;
  void **address; /* of a pointer to such a function */
};

/* Opens `path`, or where it is NULL or empty version 13 or 12 of the library, by the system's search and then in the
 * toolkit's usual folders, and finds its functions. *handle is dlopen's and the caller's. UNSUPPORTED with the reason
 * where there is no such library, or one function of it is missing. */
MUST_CHECK enum status toolkit_open(const struct toolkit_library *library, const char *path,
                                    const struct toolkit_function *functions, int count, void **handle,
                                    struct error *error);
