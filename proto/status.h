/* Statuses, and the error that every fallible function of the project fills.
 *
 * Functions return `enum status` and take a `struct error *` last. On success the error is left as it
 * was; on failure it is filled completely. Nobody owns anything: an error is a plain value. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum status {
#define STATUS(number, name, retryable, text) STATUS_##name = number,
#include "status.def"
};

enum field {
#define FIELD(number, name, text) FIELD_##name = number,
#include "status.def"
};

#define MUST_CHECK __attribute__((warn_unused_result))

/* Bytes of an error's sentence, the final NUL included. */
enum { ERROR_TEXT_BYTES = 256 };

/* What went wrong. Where `field` is not FIELD_NONE the sentence can be composed from the numbers alone
 * ("M must be 1..16777216, got 0"), which is how an error crosses a completion ring. */
struct error {
  enum status status;
  enum field field;
  int64_t value;               /* what was given */
  int64_t low, high;           /* what is allowed, inclusive; low > high: no range is known, but where high is 0 and
                                  low above 1: multiples of low */
  char text[ERROR_TEXT_BYTES]; /* never empty after a failure; no internal names, no addresses */
};

/* "INVALID"; "UNKNOWN" for a number that is no status. */
const char *status_name(enum status status);
/* "invalid argument". */
const char *status_text(enum status status);
bool status_retryable(enum status status);
/* True if `number` is a row of the table. */
bool status_known(uint32_t number);

/* "M"; "" for a number that is no field. */
const char *field_text(enum field field);

/* What stands behind a noun of which there are so many: "" or "s". */
static inline const char *plural(uint64_t count) {
  return count == 1 ? "" : "s";
}

/* Fills *error with a formatted sentence. Returns `status`, so that callers can `return error_set(...)`. */
enum status error_set(struct error *error, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fills *error for a field out of its range; the sentence is composed. Returns `status`. */
enum status error_field(struct error *error, enum status status, enum field field, int64_t value, int64_t low,
                        int64_t high);

/* Composes the sentence of error->status, field, value, low and high into error->text. */
void error_compose(struct error *error);
