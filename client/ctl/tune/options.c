/* What the options of `gemmctl tune` ask for: a kernel by hand, and the product to measure. */
#include "options.h"

#include "../../tool/words.h"

#include <string.h>

static const struct tune_parameter tune_parameters[] = {
    {"block-m", "block_m", 16, 512, 16, 128}, {"block-n", "block_n", 16, 512, 16, 128},
    {"block-k", "block_k", 16, 512, 16, 64},  {"group-size-m", "group_size_m", 1, 64, 1, 8},
    {"num-warps", "num_warps", 1, 16, 1, 4},  {"num-stages", "num_stages", 1, 8, 1, 4},
    {"split-k", "split_k", 1, 128, 1, 1},     {NULL, NULL, 0, 0, 0, 0},
};

static const struct word split_modes[] = {{"serial", 0}, {"parallel", 1}, {"parallel-y", 2}, {NULL, 0}};

static bool append(const struct tool_call *call, char *kernel, const char *option, const char *name, int64_t value) {
  size_t used = strlen(kernel);
  int more = snprintf(kernel + used, TUNE_KERNEL_BYTES - used, " %s=%lld", name, (long long)value);
  if (more > 0 && used + (size_t)more < TUNE_KERNEL_BYTES)
    return true;
  tool_fail(call, TOOL_USAGE, "--%s: the kernel's description becomes too long", option);
  return false;
}

bool tune_kernel(const struct tool_call *call, char kernel[TUNE_KERNEL_BYTES], bool *given) {
  const char *text = tool_value(call, "kernel");
  snprintf(kernel, TUNE_KERNEL_BYTES, "%s", text != NULL ? text : "any");
  *given = text != NULL;
  for (const struct tune_parameter *parameter = tune_parameters; parameter->option != NULL; parameter++) {
    int64_t value;
    if (!tool_integer(call, parameter->option, parameter->low, parameter->high, parameter->fallback, &value))
      return false;
    if ((value - parameter->low) % parameter->step != 0) {
      tool_fail(call, TOOL_USAGE, "--%s must be %lld..%lld in steps of %lld, got %lld", parameter->option,
                (long long)parameter->low, (long long)parameter->high, (long long)parameter->step, (long long)value);
      return false;
    }
    if (tool_value(call, parameter->option) == NULL)
      continue;
    *given = true;
    if (!append(call, kernel, parameter->option, parameter->name, value))
      return false;
  }
  int mode;
  if (!tool_word(call, "split-k-mode", split_modes, 0, &mode))
    return false;
  if (tool_value(call, "split-k-mode") == NULL)
    return true;
  *given = true;
  return append(call, kernel, "split-k-mode", "split_k_mode", mode);
}

bool tune_request(const struct tool_call *call, gemmd_tune_request *out) {
  int x_type, y_type, bias_type;
  int64_t m;
  if (!tool_word(call, "x-type", words_type, GEMMD_F16, &x_type) ||
      !tool_word(call, "y-type", words_type, GEMMD_F16, &y_type) ||
      !tool_word(call, "bias-type", words_type, GEMMD_TYPE_NONE, &bias_type) ||
      !tool_integer(call, "m", 1, (int64_t)1 << 24, 1, &m))
    return false;
  *out = (gemmd_tune_request){.m = (uint32_t)m,
                              .x_type = (enum gemmd_type)x_type,
                              .y_type = (enum gemmd_type)y_type,
                              .bias_type = (enum gemmd_type)bias_type,
                              .exhaustive = tool_value(call, "exhaustive") != NULL};
  return true;
}

bool tune_effort(const struct tool_call *call, gemmd_tune_search *out) {
  int64_t warmup, iterations;
  if (!tool_integer(call, "bench-warmup", 1, 20, 2, &warmup) ||
      !tool_integer(call, "bench-iterations", 2, 100, 6, &iterations))
    return false;
  bool given = tool_value(call, "bench-warmup") != NULL || tool_value(call, "bench-iterations") != NULL;
  bool bench = given || tool_value(call, "microbench") != NULL;
  out->warmup = bench ? (uint32_t)warmup : 0;
  out->iterations = bench ? (uint32_t)iterations : 0;
  return true;
}
