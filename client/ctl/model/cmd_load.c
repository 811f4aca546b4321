/* load: one tensor of a file, or the weights of a model. */
#include "../ctl.h"
#include "load.h"

#include "../../tool/print.h"
#include "../../tool/words.h"

#include <string.h>

static bool load_options(const struct tool_call *call, gemmd_load *load) {
  int format, scale, method, mode, placement;
  int64_t device, devices;
  if (!tool_word(call, "format", words_format, 0, &format) || !tool_word(call, "scale", words_scale, 0, &scale) ||
      !tool_word(call, "method", words_method, 0, &method) || !tool_word(call, "mode", words_mode, 0, &mode) ||
      !tool_word(call, "placement", words_placement, GEMMD_PLACEMENT_SINGLE, &placement) ||
      !tool_integer(call, "device", 0, 63, -1, &device) || !tool_integer(call, "devices", 1, 64, 0, &devices))
    return false;
  const char *tensor = tool_value(call, "tensor"), *name = tool_value(call, "name");
  *load = (gemmd_load){.name = name != NULL ? name : tensor,
                       .tensor = tensor,
                       .scale_tensor = tool_value(call, "scale-tensor"),
                       .format = (enum gemmd_format)format,
                       .scale = (enum gemmd_scale)scale,
                       .method = (enum gemmd_method)method,
                       .replace = tool_value(call, "replace") != NULL,
                       .placement = (enum gemmd_placement)placement,
                       .device = (int)device,
                       .devices = (unsigned)devices,
                       .mode = (enum gemmd_mode)mode,
                       .progress = load_bar_draw};
  return true;
}

static void load_report(const struct tool_call *call, const gemmd_weight_info *info) {
  if (call->json) {
    json_t *object = ctl_weight_json(info);
    json_object_set_new(object, "shared", json_boolean(info->shared));
    print_json(call->out, object);
    return;
  }
  char bytes[PRINT_UNIT_BYTES];
  const char *format = word_text(words_format, (int)info->format);
  print_bytes(info->bytes, bytes);
  if (info->shared)
    fprintf(call->out, "%s: %lld x %lld as %s; equal content was there already, %s shared by %u name%s\n", info->name,
            (long long)info->n, (long long)info->k, format, bytes, info->references, print_plural(info->references));
  else if (info->devices > 1)
    fprintf(call->out, "%s: %lld x %lld as %s, %s on %u devices\n", info->name, (long long)info->n, (long long)info->k,
            format, bytes, info->devices);
  else
    fprintf(call->out, "%s: %lld x %lld as %s, %s\n", info->name, (long long)info->n, (long long)info->k, format,
            bytes);
}

static enum tool_exit load_tensor(struct tool_call *call) {
  gemmd_load load;
  if (!load_options(call, &load))
    return TOOL_USAGE;
  if (call->count != 1)
    return tool_fail(call, TOOL_USAGE, "one argument too many: %s", call->arguments[1]);
  if (load.format == 0)
    return tool_fail(call, TOOL_USAGE, "--format FORMAT is missing");
  gemmd_session *session;
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  struct load_bar bar;
  load_bar_begin(&bar);
  load.user = &bar;
  gemmd_weight_info info;
  int status = gemmd_weight_load_file(session, call->arguments[0], &load, &info);
  load_bar_end(&bar);
  if (status != GEMMD_OK)
    code = tool_refused(call, session, status);
  else
    load_report(call, &info);
  if (status == GEMMD_EXISTS)
    tool_fail(call, code, "--replace puts the new content in its place, --name gives it another name");
  gemmd_disconnect(session);
  return code;
}

enum tool_exit ctl_load(struct tool_call *call) {
  return tool_value(call, "tensor") != NULL ? load_tensor(call) : load_model(call);
}
