/* tune watch: what is being tuned, against what, and how much was won; until it is interrupted. */
#include "watch.h"
#include "shapes.h"

#include "../../tool/print.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD_MS = 500 };

/* The same shape in another list; a kernel that is set by hand has an entry of its own for its shape, and their order
 * does not change. */
static const gemmd_tune_shape *find(const struct tune_shapes *shapes, const struct tune_shapes *in, size_t at) {
  size_t nth = 0;
  for (size_t i = 0; i < at; i++)
    nth += strcmp(in->list[i].shape, in->list[at].shape) == 0;
  for (size_t i = 0; i < shapes->count; i++)
    if (strcmp(shapes->list[i].shape, in->list[at].shape) == 0 && nth-- == 0)
      return &shapes->list[i];
  return NULL;
}

static void tell(const gemmd_tune_shape *shape, FILE *out) {
  char own[PRINT_UNIT_BYTES], tuned[PRINT_UNIT_BYTES];
  if (shape->tuning)
    fprintf(out, "tuning  %s, %llu calls so far, against %s\n", shape->shape, (unsigned long long)shape->calls,
            shape->serves ? shape->kernel : "the backend's own choice");
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
    const gemmd_tune_shape *shape = &now->list[i], *then = find(before, now, i);
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
