/* The files of the Triton backend share this; private.
 *
 * A model is one weight of gemmd: input "x" [..., k], output "y" [..., n]. An instance is one session, because Triton
 * runs an instance in one thread at a time; the requests that Triton gives it together are computed as one product. */
#ifndef CLIENT_TRITON_GEMMD_TRITON_H
#define CLIENT_TRITON_GEMMD_TRITON_H

#include <gemmclient.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The server's headers leave out the word struct, as C++ may; in C the names must be types before. */
typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;
typedef struct TRITONBACKEND_BackendAttribute TRITONBACKEND_BackendAttribute;
typedef struct TRITONBACKEND_Batcher TRITONBACKEND_Batcher;
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;
typedef struct TRITONBACKEND_MemoryManager TRITONBACKEND_MemoryManager;
typedef struct TRITONBACKEND_Model TRITONBACKEND_Model;
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;
typedef struct TRITONBACKEND_ModelInstanceResponseStatistics TRITONBACKEND_ModelInstanceResponseStatistics;
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;
typedef struct TRITONBACKEND_ResponseFactory TRITONBACKEND_ResponseFactory;
typedef struct TRITONBACKEND_State TRITONBACKEND_State;
typedef struct TRITONSERVER_BufferAttributes TRITONSERVER_BufferAttributes;
typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONSERVER_InferenceRequest TRITONSERVER_InferenceRequest;
typedef struct TRITONSERVER_InferenceResponse TRITONSERVER_InferenceResponse;
typedef struct TRITONSERVER_InferenceTrace TRITONSERVER_InferenceTrace;
typedef struct TRITONSERVER_Message TRITONSERVER_Message;
typedef struct TRITONSERVER_Metric TRITONSERVER_Metric;
typedef struct TRITONSERVER_MetricArgs TRITONSERVER_MetricArgs;
typedef struct TRITONSERVER_MetricFamily TRITONSERVER_MetricFamily;
typedef struct TRITONSERVER_Metrics TRITONSERVER_Metrics;
typedef struct TRITONSERVER_Parameter TRITONSERVER_Parameter;
typedef struct TRITONSERVER_ResponseAllocator TRITONSERVER_ResponseAllocator;
typedef struct TRITONSERVER_Server TRITONSERVER_Server;
typedef struct TRITONSERVER_ServerOptions TRITONSERVER_ServerOptions;
#include <triton/core/tritonbackend.h>

typedef TRITONSERVER_Error *failure; /* NULL: none */

/* ---- model.c */

/* Parameters of config.pbtxt. */
struct model {
  char weight[256];
  char socket[256]; /* "": gemmclient's usual place */
  char x_name[128], y_name[128];
  enum TRITONSERVER_datatype_enum x_type, y_type;
  uint64_t rows; /* that an instance computes at a time */
};

failure model_read(TRITONBACKEND_Model *from, struct model *model);
/* GEMMD_TYPE_NONE for a type that products have not. */
enum gemmd_type type_convert(enum TRITONSERVER_datatype_enum type);
size_t type_bytes(enum TRITONSERVER_datatype_enum type);

/* ---- instance.c */

struct instance {
  const struct model *model;
  gemmd_session *session;
  gemmd_weight *weight;
  uint8_t *x, *y;      /* model->rows of each in the arena */
  int64_t n, k;        /* the weight's; with the sizes below they stay when the session has ended */
  size_t x_row, y_row; /* bytes */
  bool lost;           /* the session has ended */
  uint64_t left;       /* ticket of a product that was given up and uses x and y; 0: none */
};

failure instance_make(const struct model *model, struct instance **out);
/* NULL is fine: Triton finalizes also what could not be initialized. */
void instance_free(struct instance *instance);
/* Waits until x and y are free to be written to. Where the session has ended it is opened anew. */
failure instance_ready(struct instance *instance);
/* The session has ended within a product that was asked for at `began_ns`: gemmd has been started anew and may be about
 * to be given its weights. Whether it has them within half a minute from then, and x and y are free; false also where
 * `give_up` says that nobody wants to know. */
bool instance_return(struct instance *instance, uint64_t began_ns, bool (*give_up)(void *user), void *user);
/* Whether a gemmd is there now, and has the weight; in a session of its own, beside whatever the instance does. */
failure instance_look(const struct instance *instance);
/* A product of `rows` rows that lie at instance->x, into instance->y. Waits until it is finished, or until `give_up`
 * says that nobody wants it any more: CANCELLED then. After instance_ready. */
failure instance_compute(struct instance *instance, uint32_t rows, bool (*give_up)(void *user), void *user);

/* ---- device.c */

/* From the memory of GPU `ordinal` to the host's, or back. It is there when this returns. */
failure device_copy(void *to, const void *from, uint64_t bytes, int64_t ordinal);

/* ---- execute.c */

failure instance_execute(TRITONBACKEND_ModelInstance *of, struct instance *instance, TRITONBACKEND_Request **requests,
                         uint32_t count);

/* ---- error.c */

failure error_make(enum TRITONSERVER_errorcode_enum code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A status of gemmclient as Triton's clients know it. */
failure error_of(int status, const char *sentence);

#endif
