/* The sentence that gemmd_cuda_error gives; private. */
#pragma once

#include "driver.h"

/* Keeps the sentence for this thread, and returns `status`. */
int failure_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* GEMMD_OK, or NOMEM or SYSTEM with "<doing>: <the driver's own words>". */
int failure_check(const struct driver *driver, driver_result result, const char *doing);
