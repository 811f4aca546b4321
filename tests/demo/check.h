/* One weight in one format: products through gemmd, against float64. */
#pragma once

#include "../../client/gemmclient.h"
#include "subject.h"

struct check {
  uint64_t bytes;      /* on the device */
  double dequantized;  /* worst row's error against float64 on the dequantized operands */
  double original;     /* error of all rows against float64 on the original numbers */
  double microseconds; /* of one call with all rows, median */
  bool passed;
  char why[256]; /* not passed: one sentence */
};

/* "int8", "fp8", "int2". The weight is known to gemmd as the tensor's name, a dot and the format. */
void check_run(gemmd_session *session, const struct subject *subject, enum gemmd_format format, struct check *check);
