#include "load_bar.h"

#include "../../../proto/clock.h"
#include "../../tool/print.h"

#include <unistd.h>

enum { PAUSE_NS = 100000000 }; /* between two drawings */

void load_bar_begin(struct load_bar *bar) {
  *bar = (struct load_bar){.start_ns = clock_ns(), .terminal = isatty(STDERR_FILENO) == 1};
}

void load_bar_draw(void *user, uint64_t done, uint64_t total) {
  struct load_bar *progress = user;
  uint64_t now = clock_ns();
  double seconds = (double)(now - progress->start_ns) / 1e9;
  if (!progress->terminal || seconds < 1 || (progress->visible && now - progress->drawn_ns < PAUSE_NS))
    return;
  static const char bar[] = "########################################";
  double part = total > 0 && done < total ? (double)done / (double)total : 1, rate = (double)done / seconds;
  char have[PRINT_UNIT_BYTES], all[PRINT_UNIT_BYTES], each[PRINT_UNIT_BYTES], left[PRINT_UNIT_BYTES];
  uint64_t left_ns = part > 0 ? (uint64_t)(seconds * (1 - part) / part * 1e9) : 0;
  fprintf(stderr, "\r[%-40.*s] %3.0f %%  %s of %s, %s/s, %s left\x1b[K", (int)(part * 40), bar, part * 100,
          print_bytes(done, have), print_bytes(total, all), print_bytes((uint64_t)rate, each),
          print_duration(left_ns, left));
  progress->visible = true;
  progress->drawn_ns = now;
}

void load_bar_end(const struct load_bar *bar) {
  if (bar->visible)
    fprintf(stderr, "\r\x1b[K");
}
