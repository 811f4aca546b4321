#pragma once

#include "../session/session.h"

#include <string.h>

/* Both sides' texts have the same size, or the compiler says so. */
#define COPY_TEXT(to, from)                                                                                            \
  do {                                                                                                                 \
    _Static_assert(sizeof(to) == sizeof(from), "text fields differ in size");                                          \
    memcpy((to), (from), sizeof(to));                                                                                  \
  } while (0)

/* As callers see it; private. */
void info_convert(const struct message_weight_info *from, gemmd_weight_info *to);
