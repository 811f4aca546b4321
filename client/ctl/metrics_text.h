/* The daemon's numbers and the tuner's, which are read shape by shape, in Prometheus' text format. */
#pragma once

#include "../gemmclient.h"

#include <stdio.h>

/* A GEMMD_ status; what was written by then stays written. */
int metrics_text_write(gemmd_session *session, FILE *out);
