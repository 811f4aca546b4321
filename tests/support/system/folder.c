#include "folder.h"

#include <stdio.h>
#include <stdlib.h>

char folder[] = "/tmp/gemmd-test-XXXXXX";

int folder_make(void **state) {
  snprintf(folder, sizeof folder, "/tmp/gemmd-test-XXXXXX");
  return mkdtemp(folder) != NULL ? 0 : -1;
}

bool folder_drop(const char *path) {
  char command[300];
  int length = snprintf(command, sizeof command, "rm -rf %s", path);
  return length < (int)sizeof command && system(command) == 0;
}

int folder_remove(void **state) {
  return folder_drop(folder) ? 0 : -1;
}
