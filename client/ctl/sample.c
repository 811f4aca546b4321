#include "sample.h"
#include "../../proto/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sample_waits *waits_of(struct sample *sample, uint32_t device, const char *format) {
  for (uint32_t i = 0; i < sample->waits_count; i++)
    if (sample->waits[i].device == device && strcmp(sample->waits[i].format, format) == 0)
      return &sample->waits[i];
  if (sample->waits_count == SAMPLE_DEVICES)
    return NULL;
  struct sample_waits *made = &sample->waits[sample->waits_count++];
  *made = (struct sample_waits){.device = device};
  snprintf(made->format, sizeof made->format, "%s", format);
  return made;
}

static void parse_line(const char *line, struct sample *out) {
  unsigned device;
  char format[16], bound[32];
  double value;
  if (sscanf(line, "gemmd_request_seconds_bucket{device=\"%u\",format=\"%15[^\"]\",le=\"%31[^\"]\"} %lf", &device,
             format, bound, &value) == 4) {
    struct sample_waits *waits = waits_of(out, device, format);
    if (waits == NULL || waits->count == SAMPLE_BOUNDS)
      return;
    waits->bounds[waits->count] = strtod(bound, NULL); /* "+Inf" is a number to strtod */
    waits->counts[waits->count++] = value;
  } else if (sscanf(line, "gemmd_device_queue{device=\"%u\",", &device) == 1 && device < SAMPLE_DEVICES) {
    const char *end = strrchr(line, ' ');
    out->queue[device] = end != NULL ? strtod(end, NULL) : 0;
  } else if (strncmp(line, "gemmd_refusals_total{", 21) == 0) {
    const char *end = strrchr(line, ' ');
    out->refusals += end != NULL ? strtod(end, NULL) : 0;
  } else if (sscanf(line, "gemmd_cut_off_total %lf", &value) == 1) {
    out->cut_off = value;
  }
}

void sample_parse(const char *text, struct sample *out) {
  char line[512];
  while (*text != '\0') {
    size_t length = strcspn(text, "\n");
    if (length < sizeof line) {
      memcpy(line, text, length);
      line[length] = '\0';
      parse_line(line, out);
    }
    text += length + (text[length] == '\n');
  }
}

int sample_read(gemmd_session *session, struct sample *out) {
  char *text;
  memset(out, 0, sizeof *out);
  int status = gemmd_daemon_status(session, &out->info);
  if (status == GEMMD_OK)
    status = gemmd_metrics(session, &text);
  if (status != GEMMD_OK)
    return status;
  out->ns = clock_ns();
  sample_parse(text, out);
  free(text);
  return GEMMD_OK;
}

const struct sample_waits *sample_find(const struct sample *sample, const struct sample_waits *like) {
  for (uint32_t i = 0; i < sample->waits_count; i++)
    if (sample->waits[i].device == like->device && strcmp(sample->waits[i].format, like->format) == 0)
      return &sample->waits[i];
  return NULL;
}

static double between(const struct sample_waits *before, const struct sample_waits *now, uint32_t i) {
  return now->counts[i] - (before != NULL && before->count == now->count ? before->counts[i] : 0);
}

double sample_quantile(const struct sample_waits *before, const struct sample_waits *now, double part) {
  double all = now->count > 0 ? between(before, now, now->count - 1) : 0, below = 0;
  if (all <= 0)
    return -1;
  for (uint32_t i = 0; i < now->count; i++) {
    double here = between(before, now, i), low = i > 0 ? now->bounds[i - 1] : 0;
    if (here >= part * all)
      return isinf(now->bounds[i]) ? low : low + (now->bounds[i] - low) * (part * all - below) / (here - below);
    below = here;
  }
  return -1;
}
