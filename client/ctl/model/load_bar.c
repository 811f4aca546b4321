#include "load_bar.h"

#include "../../tool/print.h"

#include <unistd.h>

static double seconds_between(const struct timespec *from, const struct timespec *to) {
  return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

void load_bar_begin(struct load_bar *bar) {
  *bar = (struct load_bar){.terminal = isatty(STDERR_FILENO) == 1};
  clock_gettime(CLOCK_MONOTONIC, &bar->start);
}

void load_bar_draw(void *user, uint64_t done, uint64_t total) {
  struct load_bar *progress = user;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  double seconds = seconds_between(&progress->start, &now);
  if (!progress->terminal || seconds < 1 || (progress->visible && seconds_between(&progress->drawn, &now) < 0.1))
    return;
  static const char bar[] = "########################################";
  double part = total > 0 && done < total ? (double)done / (double)total : 1, rate = (double)done / seconds;
  char have[PRINT_UNIT_BYTES], all[PRINT_UNIT_BYTES], each[PRINT_UNIT_BYTES], left[PRINT_UNIT_BYTES];
  uint64_t left_ns = part > 0 ? (uint64_t)(seconds * (1 - part) / part * 1e9) : 0;
  fprintf(stderr, "\r[%-40.*s] %3.0f %%  %s of %s, %s/s, %s left\x1b[K", (int)(part * 40), bar, part * 100,
          print_bytes(done, have), print_bytes(total, all), print_bytes((uint64_t)rate, each),
          print_duration(left_ns, left));
  progress->visible = true;
  progress->drawn = now;
}

void load_bar_end(const struct load_bar *bar) {
  if (bar->visible)
    fprintf(stderr, "\r\x1b[K");
}
