/* A session and a weight for one thread of the server. */
#include "../../proto/clock.h"
#include "gemmd_triton.h"

#include <stdlib.h>
#include <time.h>

/* How long a wait goes on before it asks again whether anybody wants the result; the pause before gemmd is asked again
 * for a weight that it does not have; and how long after its product was asked for. */
enum { LOOK_MS = 5, RETRY_NS = 20 * 1000 * 1000 };
#define PATIENCE_NS (30ull * 1000 * 1000 * 1000)

static failure instance_error(const struct instance *instance, int status) {
  return error_of(status, instance->session != NULL ? gemmd_error(instance->session) : gemmd_status_name(status));
}

/* gemmd is gone, or is back without the weight, or with another of that name. */
static bool lost(int status) {
  return status == GEMMD_DISCONNECTED || status == GEMMD_NOT_FOUND;
}

static failure instance_open(struct instance *instance) {
  const struct model *model = instance->model;
  gemmd_options options = {.name = "tritonserver"};
  const char *socket = model->socket[0] != '\0' ? model->socket : NULL;
  /* The size of the arena follows from the weight's, which a first session asks for. */
  gemmd_weight_info info;
  int status = gemmd_connect(&instance->session, socket, &options);
  if (status == GEMMD_OK)
    status = gemmd_weight_stat(instance->session, model->weight, &info);
  if (status != GEMMD_OK)
    return instance_error(instance, status);
  if (instance->lost && (info.n != instance->n || info.k != instance->k))
    return error_make(TRITONSERVER_ERROR_UNAVAILABLE, "%s is %lld x %lld now, and was %lld x %lld; load the model anew",
                      model->weight, (long long)info.n, (long long)info.k, (long long)instance->n,
                      (long long)instance->k);
  instance->n = info.n;
  instance->k = info.k;
  instance->x_row = (size_t)info.k * type_bytes(model->x_type);
  instance->y_row = (size_t)info.n * type_bytes(model->y_type);
  gemmd_disconnect(instance->session);

  options.arena_bytes = model->rows * (instance->x_row + instance->y_row) + (64 << 10);
  status = gemmd_connect(&instance->session, socket, &options);
  if (status == GEMMD_OK)
    status = gemmd_weight_open(instance->session, model->weight, &instance->weight);
  if (status != GEMMD_OK)
    return instance_error(instance, status);
  instance->x = gemmd_alloc(instance->session, model->rows * instance->x_row);
  instance->y = gemmd_alloc(instance->session, model->rows * instance->y_row);
  if (instance->x == NULL || instance->y == NULL)
    return instance_error(instance, GEMMD_NOMEM);
  return NULL;
}

failure instance_make(const struct model *model, struct instance **out) {
  struct instance *instance = calloc(1, sizeof *instance);
  *out = NULL;
  if (instance == NULL)
    return error_make(TRITONSERVER_ERROR_INTERNAL, "no memory for an instance");
  instance->model = model;
  failure error = instance_open(instance);
  if (error != NULL)
    instance_free(instance);
  else
    *out = instance;
  return error;
}

void instance_free(struct instance *instance) {
  if (instance == NULL)
    return;
  gemmd_disconnect(instance->session);
  free(instance);
}

/* A session that has waited in vain for the next gemmd has ended for good; another may find one by now. */
static failure instance_reopen(struct instance *instance) {
  gemmd_disconnect(instance->session);
  instance->session = NULL;
  instance->weight = NULL;
  instance->x = instance->y = NULL;
  failure error = instance_open(instance);
  instance->lost = error != NULL;
  return error;
}

failure instance_ready(struct instance *instance) {
  if (instance->left != 0) {
    /* Whatever became of it, its tensors are free; only a session that is gone has no answer. */
    instance->lost |= lost(gemmd_wait(instance->session, instance->left, -1, NULL));
    instance->left = 0;
  }
  return instance->lost ? instance_reopen(instance) : NULL;
}

bool instance_return(struct instance *instance, uint64_t began_ns, bool (*give_up)(void *user), void *user) {
  while (clock_ns() < began_ns + PATIENCE_NS && !give_up(user)) {
    failure error = instance_reopen(instance);
    if (error == NULL)
      return true;
    TRITONSERVER_ErrorDelete(error);
    nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
  }
  return false;
}

failure instance_look(const struct instance *instance) {
  const struct model *model = instance->model;
  gemmd_options options = {.name = "tritonserver ready"};
  gemmd_session *session = NULL;
  gemmd_weight_info info;
  int status = gemmd_connect(&session, model->socket[0] != '\0' ? model->socket : NULL, &options);
  if (status == GEMMD_OK)
    status = gemmd_weight_stat(session, model->weight, &info);
  failure error =
      status == GEMMD_OK ? NULL : error_of(status, session != NULL ? gemmd_error(session) : gemmd_status_name(status));
  gemmd_disconnect(session);
  return error;
}

failure instance_compute(struct instance *instance, uint32_t rows, bool (*give_up)(void *user), void *user) {
  gemmd_product product = {.m = rows,
                           .x = instance->x,
                           .x_type = type_convert(instance->model->x_type),
                           .y = instance->y,
                           .y_type = type_convert(instance->model->y_type)};
  uint64_t ticket;
  int status = gemmd_submit(instance->weight, &product, &ticket);
  instance->lost = lost(status);
  if (status != GEMMD_OK)
    return instance_error(instance, status);
  do {
    status = gemmd_wait(instance->session, ticket, LOOK_MS, NULL);
  } while (status == GEMMD_TIMEOUT && !give_up(user));
  instance->lost = lost(status);
  if (status != GEMMD_TIMEOUT)
    return instance_error(instance, status);
  gemmd_cancel(instance->session, ticket); /* at best it never begins; it has to be waited for either way */
  instance->left = ticket;
  return error_make(TRITONSERVER_ERROR_CANCELLED, "nobody waits for the product any more");
}
