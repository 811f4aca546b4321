/* tune watch: what is being tuned, against what, and how much was won; until it is interrupted. */
#include "tune.h"

#include "../tool/print.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD_MS = 500 };

static const gemmd_tune_shape *find(const struct tune_shapes *shapes, const char *shape) {
  for (size_t i = 0; i < shapes->count; i++)
    if (strcmp(shapes->list[i].shape, shape) == 0)
      return &shapes->list[i];
  return NULL;
}

static void tell(const gemmd_tune_shape *shape, FILE *out) {
  char own[PRINT_UNIT_BYTES], tuned[PRINT_UNIT_BYTES];
  if (shape->tuning)
    fprintf(out, "tuning  %s, %llu calls so far\n", shape->shape, (unsigned long long)shape->calls);
  else if (strcmp(shape->state, "tuned") == 0 && shape->serves && shape->own_ns > 0 && shape->tuned_ns > 0)
    fprintf(out, "tuned   %s: %s instead of %s (%.2f times as fast) by %s\n", shape->shape,
            print_duration(shape->tuned_ns, tuned), print_duration(shape->own_ns, own),
            (double)shape->own_ns / (double)shape->tuned_ns, shape->kernel);
  else if (strcmp(shape->state, "tuned") == 0)
    fprintf(out, "tuned   %s: nothing is faster than %s\n", shape->shape,
            shape->own_ns > 0 ? print_duration(shape->own_ns, own) : "the first choice");
  else if (strcmp(shape->state, "failed") == 0)
    fprintf(out, "failed  %s: %s\n", shape->shape, shape->why);
  else
    fprintf(out, "%-7s %s\n", shape->state, shape->shape);
}

static void tell_changes(const struct tool_call *call, const struct tune_shapes *before,
                         const struct tune_shapes *now) {
  for (size_t i = 0; i < now->count; i++) {
    const gemmd_tune_shape *shape = &now->list[i], *then = find(before, shape->shape);
    if (then != NULL && then->tuning == shape->tuning && strcmp(then->state, shape->state) == 0)
      continue;
    if (call->json)
      print_json(call->out, tune_shape_json(shape));
    else
      tell(shape, call->out);
  }
  fflush(call->out);
}

enum tool_exit tune_watch(struct tool_call *call, gemmd_session *session, uint32_t device) {
  struct tune_shapes before = {.list = NULL}, now;
  enum tool_exit code;
  while ((code = tune_shapes(call, session, device, &now)) == TOOL_OK) {
    tell_changes(call, &before, &now);
    free(before.list);
    before = now;
    nanosleep(&(struct timespec){.tv_nsec = PERIOD_MS * 1000000}, NULL);
  }
  free(before.list);
  free(now.list);
  return code;
}
