#include "error.h"
#include "../gemmclient_direct.h"

#include <string.h>

static _Thread_local char sentence[ERROR_TEXT_BYTES];

int direct_result(enum status status, const struct error *error) {
  if (status != STATUS_OK)
    memcpy(sentence, error->text, sizeof sentence);
  return -(int)status;
}

const char *gemmd_direct_error(void) {
  return sentence;
}
