/* What Triton calls in libtriton_gemmd.so. */
#include "gemmd_triton.h"

#include <stdlib.h>

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  uint32_t major, minor;
  failure error = TRITONBACKEND_ApiVersion(&major, &minor);
  if (error == NULL && (major != TRITONBACKEND_API_VERSION_MAJOR || minor < TRITONBACKEND_API_VERSION_MINOR))
    error = error_make(TRITONSERVER_ERROR_UNSUPPORTED, "the server's backend API is %u.%u, this needs %d.%d or later",
                       major, minor, TRITONBACKEND_API_VERSION_MAJOR, TRITONBACKEND_API_VERSION_MINOR);
  return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *of) {
  struct model *model = calloc(1, sizeof *model);
  if (model == NULL)
    return error_make(TRITONSERVER_ERROR_INTERNAL, "no memory for a model");
  failure error = model_read(of, model);
  if (error == NULL)
    error = TRITONBACKEND_ModelSetState(of, model);
  if (error != NULL)
    free(model);
  return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *of) {
  void *model = NULL;
  failure error = TRITONBACKEND_ModelState(of, &model);
  if (error == NULL)
    free(model);
  return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *of) {
  TRITONBACKEND_Model *model;
  void *state;
  struct instance *instance = NULL;
  failure error = TRITONBACKEND_ModelInstanceModel(of, &model);
  if (error == NULL)
    error = TRITONBACKEND_ModelState(model, &state);
  if (error == NULL)
    error = instance_make(state, &instance);
  if (error == NULL)
    error = TRITONBACKEND_ModelInstanceSetState(of, instance);
  if (error != NULL)
    instance_free(instance);
  return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *of) {
  void *instance = NULL;
  failure error = TRITONBACKEND_ModelInstanceState(of, &instance);
  if (error == NULL)
    instance_free(instance);
  return error;
}

/* Asked by servers that know it, when somebody asks whether the model is ready; others take a model that was loaded for
 * ready. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance *of) {
  void *instance;
  failure error = TRITONBACKEND_ModelInstanceState(of, &instance);
  return error != NULL ? error : instance_look(instance);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *of,
                                                       TRITONBACKEND_Request **requests, const uint32_t count) {
  void *instance;
  failure error = TRITONBACKEND_ModelInstanceState(of, &instance);
  return error != NULL ? error : instance_execute(of, instance, requests, count);
}
