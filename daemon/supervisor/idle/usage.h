/* Who uses a device, by what the sessions have there and say. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct supervisor;

struct usage {
  bool direct;             /* sessions have borrowed weights that lie there, and compute themselves */
  bool served;             /* sessions have weights or memory open there, or something is being loaded */
  uint64_t products;       /* that direct clients have told of */
  uint64_t pause_until_ns; /* all of them leave it alone until then; 0: they do not say so */
};

struct usage usage_of(const struct supervisor *supervisor, uint32_t device, uint64_t now_ns);
