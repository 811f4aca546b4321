/* The daemon's numbers and the tuner's, which are read shape by shape, in Prometheus' text format. */
#ifndef CTL_METRICS_TEXT_H
#define CTL_METRICS_TEXT_H

#include "../gemmclient.h"

#include <stdio.h>

/* A GEMMD_ status; what was written by then stays written. */
int metrics_text_write(gemmd_session *session, FILE *out);

#endif
