#include "toolkit.h"

#include <dlfcn.h>
#include <stdio.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const char *const folders[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/"};
static const int versions[] = {13, 12};

/* What this process has loaded already, and then what the system finds. */
static void *find(const struct toolkit_library *library) {
  void *handle = NULL;
  for (int i = 0; i < COUNT(versions) && handle == NULL; i++) {
    char usual[128];
    snprintf(usual, sizeof usual, "%s.so.%d", library->name, versions[i]);
    handle = dlopen(usual, library->flags | RTLD_NOLOAD);
  }
  for (int i = 0; i < COUNT(folders) * COUNT(versions) && handle == NULL; i++) {
    char usual[128];
    snprintf(usual, sizeof usual, "%s%s.so.%d", folders[i / COUNT(versions)], library->name,
             versions[i % COUNT(versions)]);
    handle = dlopen(usual, library->flags);
  }
  return handle;
}

enum status toolkit_open(const struct toolkit_library *library, const char *path,
                         const struct toolkit_function *functions, int count, void **handle, struct error *error) {
  bool named = path != NULL && *path != '\0';
  *handle = named ? dlopen(path, library->flags) : find(library);
  if (*handle == NULL && named)
    return error_set(error, STATUS_UNSUPPORTED, "%s: %s", library->without, dlerror());
  if (*handle == NULL)
    return error_set(error, STATUS_UNSUPPORTED,
                     "%s: %s.so.13 and .12 are neither where the system looks nor under /usr/local/cuda; the option %s "
                     "names another",
                     library->without, library->name, library->option);
  for (int i = 0; i < count; i++) {
    *functions[i].address = dlsym(*handle, functions[i].name);
    if (*functions[i].address == NULL) {
      dlclose(*handle);
      *handle = NULL;
      return error_set(error, STATUS_UNSUPPORTED, "%s: %s has no %s", library->without, named ? path : library->name,
                       functions[i].name);
    }
  }
  return STATUS_OK;
}
