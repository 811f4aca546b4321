/* The shape of msgpack bytes, checked before anything is built from them: what a header promises must be there, so
 * that a few bytes cannot make the unpacker allocate or recurse without bound. */
#pragma once

#include "../status.h"

/* Measures the one value that `bytes` begin with: *used is what it takes. `depth`: how many arrays and maps may be
 * nested in one another. PROTOCOL where it is cut short, nested deeper, or no msgpack. */
MUST_CHECK enum status message_shape_value(const uint8_t *bytes, size_t length, unsigned depth, size_t *used,
                                           struct error *error);

/* Whether `bytes` are well-formed UTF-8 without NUL. */
bool message_shape_text(const char *bytes, size_t length);
