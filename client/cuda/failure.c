#include "failure.h"

#include "../gemmclient_cuda.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char sentence[512];

int failure_set(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  return status;
}

int failure_check(const struct driver *driver, driver_result result, const char *doing) {
  const char *text = NULL;
  if (result == 0)
    return GEMMD_OK;
  if (driver->cuGetErrorString(result, &text) != 0 || text == NULL)
    text = "unknown error";
  return failure_set(result == DRIVER_OUT_OF_MEMORY ? GEMMD_NOMEM : GEMMD_SYSTEM, "%s: %s", doing, text);
}

const char *gemmd_cuda_error(void) {
  return sentence;
}
