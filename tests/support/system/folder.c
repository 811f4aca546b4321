#include "folder.h"

#include <stdio.h>
#include <stdlib.h>

char folder[] = "/tmp/gemmd-test-XXXXXX";

int folder_make(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/gemmd-test-XXXXXX");
  return mkdtemp(folder) != NULL ? 0 : -1;
}

int folder_remove(void **state) {
  char command[sizeof folder + 8];
  (void)state;
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) == 0 ? 0 : -1;
}
