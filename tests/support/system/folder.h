/* A folder of a test's own below /tmp, one at a time. */
#pragma once

#include <stdbool.h>

/* Its path, between the two below. */
extern char folder[];

/* For cmocka: before and after a test. 0, or -1 where it cannot be made or removed. */
int folder_make(void **state);
int folder_remove(void **state);

/* Removes any folder, with what is below it. */
bool folder_drop(const char *path);
