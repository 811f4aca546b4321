#include "waves.h"

#include <math.h>

static int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

double waves_us(const struct wave_prices *prices, const struct kernel_problem *problem, const struct wave_cut *cut) {
  static const double memory = 4.45e6; /* bytes of W */
  int sms = problem->device.multiprocessors;
  double x_tiles = (double)quotient_up(problem->m, WAVE_COLUMNS);
  double tiles = (double)(quotient_up(problem->n, cut->rows) * quotient_up(problem->m, WAVE_COLUMNS));
  double waves = ceil(tiles * cut->split / sms), blocks = fmin(tiles * cut->split, sms);
  double steps = ceil((double)problem->k_padded / WAVE_STEP / cut->split);
  double step = prices->step + prices->step_crowded * blocks / sms;
  double coming = blocks * cut->rows * WAVE_STEP / fmin(x_tiles, cut->group) / memory;
  return prices->launch + waves * (prices->tile / cut->split + steps * fmax(step, coming));
}
