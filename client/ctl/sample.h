/* gemmd's numbers at one moment, and what two moments say of the time between. Pure but for sample_read. */
#pragma once

#include "../gemmclient.h"

enum { SAMPLE_DEVICES = 64, SAMPLE_BOUNDS = 32 };

/* A histogram of waits as Prometheus has it: counts[i] requests took at most bounds[i] seconds. */
struct sample_waits {
  uint32_t device;
  char format[16];
  uint32_t count;
  double bounds[SAMPLE_BOUNDS];
  double counts[SAMPLE_BOUNDS];
};

struct sample {
  uint64_t ns; /* of the monotonic clock */
  gemmd_daemon_info info;
  double queue[SAMPLE_DEVICES];
  struct sample_waits waits[SAMPLE_DEVICES];
  uint32_t waits_count;
  double refusals, cut_off;
};

/* A status of gemmclient.h. */
int sample_read(gemmd_session *session, struct sample *out);
/* Takes what is of use in a text of gemmd_metrics. */
void sample_parse(const char *text, struct sample *out);

/* The wait in seconds that the share `part` (0..1) of the requests between the two samples took at most, interpolated
 * within its bucket; below 0: there were none. `before` NULL: since the beginning. */
double sample_quantile(const struct sample_waits *before, const struct sample_waits *now, double part);
/* That of the same device and format; NULL. */
const struct sample_waits *sample_find(const struct sample *sample, const struct sample_waits *like);
