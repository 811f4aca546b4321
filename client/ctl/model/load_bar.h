#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A bar on stderr: from the second second on, where stderr is a terminal. */
struct load_bar {
  uint64_t start_ns, drawn_ns;
  bool terminal, visible;
};

void load_bar_begin(struct load_bar *bar);
/* `user` is the bar; bytes. */
void load_bar_draw(void *user, uint64_t done, uint64_t total);
void load_bar_end(const struct load_bar *bar);
