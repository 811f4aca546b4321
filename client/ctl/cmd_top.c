/* top: the daemon's numbers on the terminal, anew every second. */
#include "ctl.h"
#include "sample.h"

#include "../tool/print.h"

#include <curses.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double per_second(uint64_t before, uint64_t now, double seconds) {
  return seconds > 0 && now >= before ? (double)(now - before) / seconds : 0;
}

static void draw_head(const struct sample *now, const struct sample *before, double seconds) {
  char time[PRINT_UNIT_BYTES], bytes[PRINT_UNIT_BYTES], arena[PRINT_UNIT_BYTES];
  const gemmd_daemon_info *info = &now->info;
  mvprintw(0, 0, "%s, backend %s, up %s", info->server, info->backend, print_duration(info->uptime_ms * 1000000, time));
  mvprintw(1, 0, "%u session%s with %s; %u weight%s under %u name%s, %s", info->sessions, print_plural(info->sessions),
           print_bytes(info->arena_bytes, arena), info->weights, print_plural(info->weights), info->names,
           print_plural(info->names), print_bytes(info->weight_bytes, bytes));
  mvprintw(2, 0, "refused %.0f (%.1f/s), cut off %.0f", now->refusals,
           seconds > 0 ? (now->refusals - before->refusals) / seconds : 0, now->cut_off);
}

static void draw_devices(int *line, const struct sample *now, const struct sample *before, double seconds) {
  attron(A_REVERSE);
  mvprintw((*line)++, 0, "%-3s %-24.24s %-8s %5s %9s %9s %10s %6s %9s %9s %8s", "DEV", "NAME", "STATE", "BUSY",
           "PRODUCT/S", "REQUEST/S", "ROWS/S", "QUEUE", "WEIGHTS", "TAKEN", "RESTARTS");
  attroff(A_REVERSE);
  for (uint32_t i = 0; i < now->info.devices && i < SAMPLE_DEVICES; i++) {
    const gemmd_device_info *device = &now->info.device[i], *was = &before->info.device[i];
    char used[PRINT_UNIT_BYTES], taken[PRINT_UNIT_BYTES];
    mvprintw((*line)++, 0, "%-3u %-24.24s %-8s %4.0f%% %9.0f %9.0f %10.0f %6.0f %9s %9s %8u", i, device->name,
             device->state, per_second(was->device_ns, device->device_ns, seconds) / 1e7,
             per_second(was->products, device->products, seconds), per_second(was->requests, device->requests, seconds),
             per_second(was->rows, device->rows, seconds), now->queue[i], print_bytes(device->memory_used, used),
             print_bytes(device->memory_slabs, taken), device->restarts);
  }
}

static const char *seconds_text(double seconds, char *out) {
  return seconds < 0 ? "-" : print_duration((uint64_t)(seconds * 1e9), out);
}

static void draw_waits(int *line, const struct sample *now, const struct sample *before, double seconds) {
  attron(A_REVERSE);
  mvprintw((*line)++, 0, "%-3s %-8s %10s %10s %10s %10s %12s", "DEV", "FORMAT", "REQUEST/S", "P50", "P99", "P99.9",
           "P99 EVER");
  attroff(A_REVERSE);
  for (uint32_t i = 0; i < now->waits_count; i++) {
    const struct sample_waits *waits = &now->waits[i], *was = sample_find(before, waits);
    char texts[4][PRINT_UNIT_BYTES];
    double all = waits->counts[waits->count - 1] - (was != NULL ? was->counts[was->count - 1] : 0);
    mvprintw((*line)++, 0, "%-3u %-8s %10.0f %10s %10s %10s %12s", waits->device, waits->format,
             seconds > 0 ? all / seconds : 0, seconds_text(sample_quantile(was, waits, 0.5), texts[0]),
             seconds_text(sample_quantile(was, waits, 0.99), texts[1]),
             seconds_text(sample_quantile(was, waits, 0.999), texts[2]),
             seconds_text(sample_quantile(NULL, waits, 0.99), texts[3]));
  }
}

static void draw(const struct sample *now, const struct sample *before) {
  double seconds = (double)(now->ns - before->ns) / 1e9;
  int line = 4;
  erase();
  draw_head(now, before, seconds);
  draw_devices(&line, now, before, seconds);
  line++;
  draw_waits(&line, now, before, seconds);
  mvprintw(line + 1, 0, "q ends; waits are from the ring to the end of the product");
  refresh();
}

/* Draws until `q`, or `frames` times where that is not 0. The first frame has no time to compare with. */
static int watch(gemmd_session *session, int64_t frames, int64_t interval_ms) {
  static struct sample samples[2];
  int status = sample_read(session, &samples[0]);
  samples[1] = samples[0];
  timeout((int)interval_ms);
  for (int64_t i = 0; status == GEMMD_OK; i++) {
    draw(&samples[i % 2], &samples[(i + 1) % 2]);
    if ((frames != 0 && i + 1 == frames) || getch() == 'q')
      break;
    status = sample_read(session, &samples[(i + 1) % 2]);
  }
  return status;
}

static enum tool_exit run_top(struct tool_call *call) {
  int64_t frames, interval_ms;
  gemmd_session *session;
  if (!tool_integer(call, "count", 0, 1000000, 0, &frames) ||
      !tool_integer(call, "interval-ms", 100, 60000, 1000, &interval_ms))
    return TOOL_USAGE;
  if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
    return tool_fail(call, TOOL_USAGE, "takes a terminal; for programs there are status --json and metrics");
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  setlocale(LC_ALL, "");
  SCREEN *screen = newterm(NULL, stdout, stdin);
  if (screen == NULL) {
    gemmd_disconnect(session);
    return tool_cannot(call, GEMMD_UNSUPPORTED, "the terminal \"%s\" is not known",
                       getenv("TERM") ? getenv("TERM") : "");
  }
  cbreak();
  noecho();
  curs_set(0);
  int status = watch(session, frames, interval_ms);
  endwin();
  delscreen(screen);
  if (status != GEMMD_OK)
    code = tool_refused(call, session, status);
  gemmd_disconnect(session);
  return code;
}

static const struct tool_option top_options[] = {
    {"interval-ms", "N", "between two looks, 100..60000; 1000 if not given", false},
    {"count", "N", "how many looks; else until q is typed", false},
    {0},
};

const struct tool_command ctl_top = {
    .name = "top",
    .arguments = "",
    .summary = "Devices, rates and waits on the terminal, anew every second; q ends.",
    .options = top_options,
    .example = "gemmctl top",
    .keys = "  none: it takes a terminal",
    .run = run_top,
};
