/* Opening and closing: which backend, which device. */
#include "error.h"
#include "plan.h"
#include "state.h"
#include "tuned.h"
#include "weight.h"

#include <stdlib.h>
#include <string.h>

enum { LANES_MOST = 16, ROWS_USUAL = 512 };

static enum status options_check(const gemmd_direct_options *options, struct error *error) {
  if (options->bytes < sizeof *options)
    return error_set(error, STATUS_INVALID, "bytes of the options must be at least %zu, got %zu", sizeof *options,
                     options->bytes);
  if (options->ordinal < -1)
    return error_set(error, STATUS_INVALID, "ordinal must be -1 or a device, got %d", options->ordinal);
  if (options->lanes < 0 || options->lanes > LANES_MOST)
    return error_set(error, STATUS_INVALID, "lanes must be 1..%d, got %d", LANES_MOST, options->lanes);
  if (options->rows_most < 0 || options->rows_most > LIMIT_M)
    return error_set(error, STATUS_INVALID, "rows_most must be 1..%lld, got %lld", (long long)LIMIT_M,
                     (long long)options->rows_most);
  if (options->pairs_most < 0 || options->pairs_most > LIMIT_M)
    return error_set(error, STATUS_INVALID, "pairs_most must be 0..%lld, got %lld", (long long)LIMIT_M,
                     (long long)options->pairs_most);
  if (options->threads < 0)
    return error_set(error, STATUS_INVALID, "threads must be at least 0, got %d", options->threads);
  return STATUS_OK;
}

/* What gemmd computes with is what its weights lie ready for. */
static enum status backend_name(gemmd_session *session, char name[16], struct error *error) {
  gemmd_daemon_info *info = malloc(sizeof *info);
  if (info == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for what gemmd says of itself");
  int result = gemmd_daemon_status(session, info);
  if (result == GEMMD_OK)
    memcpy(name, info->backend, sizeof info->backend);
  free(info);
  return result == GEMMD_OK ? STATUS_OK : error_set(error, (enum status) - result, "%s", gemmd_error(session));
}

static enum status backend_open(struct gemmd_direct *direct, const gemmd_direct_options *options, const char *name,
                                struct error *error) {
  const struct backend_config config = {.device =
                                            options->ordinal < 0 && strcmp(name, "cuda") != 0 ? 0 : options->ordinal,
                                        .threads = options->threads,
                                        .parallel = options->parallel,
                                        .parallel_context = options->parallel_context,
                                        .in_flight = direct->lanes,
                                        .direct = true,
                                        .rows_most = direct->rows_most,
                                        .pairs_most = options->pairs_most};
  char reason[128];
  direct->ops = backend_choose(name, &config, reason, sizeof reason, error);
  if (direct->ops == NULL)
    return error->status;
  void *saved = direct_enter(direct);
  enum status status = direct->ops->open(&config, &direct->backend, error);
  if (status == STATUS_OK)
    direct->ops->describe(direct->backend, &direct->info);
  direct_leave(direct, saved);
  return status;
}

static enum status open_for(gemmd_session *session, const gemmd_direct_options *options, gemmd_direct **out,
                            struct error *error) {
  char name[16];
  enum status status = options_check(options, error);
  if (status == STATUS_OK)
    status = backend_name(session, name, error);
  if (status != STATUS_OK)
    return status;
  struct gemmd_direct *direct = calloc(1, sizeof *direct);
  if (direct == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for direct products");
  direct->session = session;
  direct->lanes = options->lanes > 0 ? options->lanes : 1;
  direct->rows_most = options->rows_most > 0 ? options->rows_most : ROWS_USUAL;
  pthread_mutex_init(&direct->lock, NULL);
  status = backend_open(direct, options, name, error);
  if (status == STATUS_OK) {
    *out = direct;
    return status;
  }
  pthread_mutex_destroy(&direct->lock);
  free(direct);
  return status;
}

int gemmd_direct_open(gemmd_session *session, const gemmd_direct_options *options, gemmd_direct **out) {
  struct error error = {0};
  *out = NULL;
  return direct_result(open_for(session, options, out, &error), &error);
}

int gemmd_direct_close(gemmd_direct *direct) {
  struct error error = {0};
  if (direct == NULL)
    return GEMMD_OK;
  if (direct->ops->held != NULL && direct->ops->held(direct->backend))
    return direct_result(error_set(&error, STATUS_BUSY, "a CUDA graph has recorded products and lives"), &error);
  while (!LIST_EMPTY(&direct->plans))
    plan_release(LIST_FIRST(&direct->plans));
  while (!LIST_EMPTY(&direct->weights))
    weight_release(LIST_FIRST(&direct->weights));
  void *saved = direct_enter(direct);
  direct->ops->close(direct->backend);
  direct_leave(direct, saved);
  tuned_close(direct);
  pthread_mutex_destroy(&direct->lock);
  free(direct);
  return GEMMD_OK;
}
