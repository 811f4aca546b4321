/* Products that ask for much, as data, and a client that asks for them: what such a client must not do to others. */
#pragma once

#include "client/gemmclient.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum hostile_kind { HOSTILE_TENSORS, HOSTILE_WEIGHT, HOSTILE_PLAN };

/* A line of the table: "KIND FORMAT MxNxK CLASS IN_FLIGHT [STEPS]". W and x hold multiples of a half up to 1, so that
 * sums of up to 2^22 of them are exact in f32 whatever their order. Weights are f16 or bf16 as they are, or quantized
 * from these. */
struct hostile_case {
  enum hostile_kind kind;
  enum gemmd_format format; /* of W; of tensors F16 or BF16 */
  int64_t m, n, k;
  enum gemmd_priority priority;
  unsigned in_flight;
  unsigned steps; /* of a plan, all [n, k], n = k */
  char line[96];
};

/* A case of the table, tests/isolation/cases.inc; false behind its end. A line that cannot be read ends the program. */
bool hostile_read(size_t index, struct hostile_case *out);
/* Multiply-adds of all its products. */
double hostile_terms(const struct hostile_case *what);
/* Bytes of the arena that it needs. */
uint64_t hostile_bytes(const struct hostile_case *what);

/* What came of it. */
struct hostile_result {
  unsigned ended;   /* products that were computed */
  unsigned dropped; /* cancelled, because patience was over */
  bool wrong;       /* some element of y, of those looked at */
  int status;       /* of the first product that failed for another reason; GEMMD_OK: none */
  char why[256];
};

/* A session at `socket` of user `uid`, where this process may become that (root); else its own. */
gemmd_session *hostile_join(const char *socket, uid_t uid, const struct hostile_case *what);
/* Asks for all of it in this session, waits `patience_ms` at most, drops the rest, and looks at some elements of y of
 * what has ended where W is f16 or bf16 and there is no plan. False where it could not be asked for: *out says why. */
bool hostile_run(gemmd_session *session, const struct hostile_case *what, int patience_ms, struct hostile_result *out);
