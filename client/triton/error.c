#include "gemmd_triton.h"

#include <stdarg.h>
#include <stdio.h>

failure error_make(enum TRITONSERVER_errorcode_enum code, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return TRITONSERVER_ErrorNew(code, text);
}

failure error_of(int status, const char *sentence) {
  switch (status) {
  case GEMMD_OK:
    return NULL;
  case GEMMD_INVALID:
  case GEMMD_TOO_LARGE:
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, sentence);
  case GEMMD_NOT_FOUND:
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, sentence);
  case GEMMD_UNSUPPORTED:
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, sentence);
  case GEMMD_CANCELLED:
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_CANCELLED, sentence);
  case GEMMD_BUSY:
  case GEMMD_NOMEM:
  case GEMMD_TIMEOUT:
  case GEMMD_DEVICE_LOST:
  case GEMMD_DISCONNECTED:
  case GEMMD_SHUTTING_DOWN:
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, sentence);
  default:
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, sentence);
  }
}
