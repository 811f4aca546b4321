/* A real daemon that serves a weight of each format, layer.0, layer.1, ..., but for those at the end that its backend
 * has no kernels for. What fails ends the running cmocka test. */
#pragma once

#include "client/gemmclient.h"
#include "daemon.h"
#include "tests/support/reference/oracle.h"

enum { LAYERS = 13 };
extern const struct gemm_weight layers_shapes[LAYERS];

struct layers {
  struct daemon daemon;
  int count;                            /* that are served */
  struct oracle_weight weights[LAYERS]; /* as in the file; client processes inherit them */
};
extern struct layers layers;

/* For cmocka: before and after a group of tests. */
int layers_start(void **state);
int layers_stop(void **state);
/* For cmocka: after a test. Fails where it has left a weight behind, or the worker has died. */
int layers_as_before(void **state);

/* The result lasts for four calls. */
const char *layers_name(int index);
/* The file that they were loaded from; in it is also "real", the values of layer.2 in F32. */
const char *layers_model(void);
/* Loads a tensor of it under another name. */
void layers_load(gemmd_session *session, const char *tensor, const char *name, enum gemmd_format format);
