#include "metrics_text.h"

#include <stdlib.h>
#include <string.h>

enum { STATES_MOST = 8 };

struct states {
  char names[STATES_MOST][16];
  uint64_t shapes[STATES_MOST];
  uint32_t count;
};

static bool count_shape(void *user, const gemmd_tune_shape *shape) {
  struct states *states = user;
  uint32_t i = 0;
  while (i < states->count && strcmp(states->names[i], shape->state) != 0)
    i++;
  if (i == STATES_MOST)
    return true;
  if (i == states->count)
    snprintf(states->names[states->count++], sizeof states->names[0], "%.15s", shape->state);
  states->shapes[i]++;
  return true;
}

static void write_device(FILE *out, uint32_t device, const struct states *states) {
  for (uint32_t i = 0; i < states->count; i++)
    fprintf(out, "gemmd_tune_shapes{device=\"%u\",state=\"%s\"} %llu\n", device, states->names[i],
            (unsigned long long)states->shapes[i]);
}

static int write_tuning(gemmd_session *session, FILE *out) {
  static gemmd_daemon_info info;
  int status = gemmd_daemon_status(session, &info);
  fprintf(out, "# HELP gemmd_tune_shapes Shapes that were served, by what the tuner knows of them.\n"
               "# TYPE gemmd_tune_shapes gauge\n");
  for (uint32_t i = 0; status == GEMMD_OK && i < info.devices; i++) {
    struct states states = {.count = 0};
    if (strcmp(info.device[i].state, "asleep") == 0) /* to ask for its list would start it, at every scrape */
      continue;
    int listed = gemmd_tune_list(session, i, count_shape, &states);
    if (listed == GEMMD_OK)
      write_device(out, i, &states);
    else if (listed != GEMMD_DEVICE_LOST) /* the successor will have a list again */
      status = listed;
  }
  return status;
}

int metrics_text_write(gemmd_session *session, FILE *out) {
  char *text;
  int status = gemmd_metrics(session, &text);
  if (status != GEMMD_OK)
    return status;
  fputs(text, out);
  free(text);
  return write_tuning(session, out);
}
