#include "listing.h"

static bool same(const struct listing_rules *rules, const struct kernel_problem *problem, const struct variant *left,
                 const struct variant *right) {
  return rules->same ? rules->same(problem, left, right) : variant_equal(left, right);
}

int listing_add(const struct listing_rules *rules, const struct kernel_problem *problem, const struct variant *variant,
                struct variant *out, int count, int most) {
  for (int i = 0; i < count; i++)
    if (same(rules, problem, &out[i], variant))
      return count;
  if (count == most || !rules->fits(problem, variant))
    return count;
  out[count] = *variant;
  return count + 1;
}

int listing_neighbours(const struct listing_rules *rules, const struct kernel_problem *problem,
                       const struct variant *base, struct variant *out, int most) {
  int count = 0;
  for (size_t i = 0; i < base->family->count; i++) {
    const struct variant_parameter *parameter = &base->family->parameters[i];
    int32_t value = base->values[i], steps[] = {value + parameter->step, value - parameter->step, value * 2, value / 2};
    for (size_t j = 0; j < sizeof steps / sizeof *steps; j++) {
      struct variant variant = *base;
      variant.values[i] = steps[j];
      if (steps[j] >= parameter->low && steps[j] <= parameter->high &&
          (steps[j] - parameter->low) % parameter->step == 0 && !same(rules, problem, &variant, base))
        count = listing_add(rules, problem, &variant, out, count, most);
    }
  }
  return count;
}
