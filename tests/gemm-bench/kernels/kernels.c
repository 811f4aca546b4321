#include "../kernels.h"

#ifdef GEMMD_CUDA
#include "cuda/device.h"
#endif
#include "experts.h"
#include "turned.h"

#include <string.h>

enum tool_exit bench_kernels(struct tool_call *call) {
  struct settings settings = {.config = {.in_flight = 1}};
  struct error error = {0};
  char reason[256];
  const char *name = tool_value(call, "backend");
  settings.ops = backend_choose(name != NULL ? name : "auto", &settings.config, reason, sizeof(reason), &error);
  if (settings.ops == NULL) {
    return tool_fail(call, TOOL_REFUSED, "%s", error.text);
  }
  if (!settings_parse(call, &settings)) {
    return TOOL_USAGE;
  }
  enum status status;
#ifdef GEMMD_CUDA
  if (strcmp(settings.ops->name, "cuda") == 0 && settings.experts == 0) {
    status = device_measure(call, &settings, &error);
  } else
#endif
    status = settings.experts > 0 ? experts_measure(call, &settings, &error) : turned_measure(call, &settings, &error);
  return status == STATUS_OK ? TOOL_OK : tool_fail(call, TOOL_REFUSED, "%s", error.text);
}
