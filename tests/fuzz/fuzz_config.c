/* The configuration file: what is taken can be passed on as options of a command line, and means the same there. */
#include "daemon/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct config config, again;
  struct error error;
  char path[64];
  int file = memfd_create("fuzz", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != (ssize_t)size)
    abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  config_defaults(&config);
  config_defaults(&again);
  if (config_read(&config, path, &error) == STATUS_OK) {
    for (size_t i = 0; i < config_option_count(); i++) {
      struct config_option option;
      char value[CONFIG_STRING_BYTES];
      config_option_at(i, &option);
      config_value(&config, i, value, sizeof value);
      if (config_set(&again, option.name, value, &error) != STATUS_OK)
        abort();
    }
    if (memcmp(&config, &again, sizeof config) != 0)
      for (size_t i = 0; i < config_option_count(); i++) { /* bytes behind a string's end may differ */
        char one[CONFIG_STRING_BYTES], other[CONFIG_STRING_BYTES];
        config_value(&config, i, one, sizeof one);
        config_value(&again, i, other, sizeof other);
        if (strcmp(one, other) != 0)
          abort();
      }
  }
  close(file);
  return 0;
}
