#include "identity.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>

#ifndef KERNELS_HASH
#error "the Makefile defines KERNELS_HASH"
#endif

void identity_make(const char *parts, char *out, size_t bytes) {
  size_t used = 0, room = bytes - sizeof "-k" KERNELS_HASH;
  for (; *parts != '\0' && used < room; parts++) {
    char letter = (char)tolower((unsigned char)*parts);
    bool plain = isalnum((unsigned char)letter) || letter == '.' || letter == '_';
    if (plain || (used > 0 && out[used - 1] != '-'))
      out[used++] = plain ? letter : '-';
  }
  snprintf(out + used, bytes - used, "-k%s", KERNELS_HASH);
}
