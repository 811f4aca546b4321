/* load: one tensor of a file, or the weights of a model. */
#include "../ctl.h"
#include "load_bar.h"
#include "load_model.h"

#include "../../tool/print.h"
#include "../../tool/words.h"

#include <limits.h>
#include <string.h>

enum { MORE_MOST = 7 };

/* `more` is what *load points to. */
static bool take_options(const struct tool_call *call, gemmd_load *load, const char *more[MORE_MOST]) {
  int format, scale, method, mode, placement;
  int64_t device, devices, experts, expert;
  if (!tool_word(call, "format", words_format, 0, &format) || !tool_word(call, "scale", words_scale, 0, &scale) ||
      !tool_word(call, "method", words_method, 0, &method) || !tool_word(call, "mode", words_mode, 0, &mode) ||
      !tool_word(call, "placement", words_placement, GEMMD_PLACEMENT_SINGLE, &placement) ||
      !tool_integer(call, "device", 0, 63, -1, &device) || !tool_integer(call, "devices", 1, 64, 0, &devices) ||
      !tool_integer(call, "experts", 1, 512, 0, &experts) || !tool_integer(call, "expert", 0, 65535, 0, &expert))
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
                       .progress = load_bar_draw,
                       .trust_size_and_time = tool_value(call, "trust-size-and-time") != NULL,
                       .experts = (unsigned)experts,
                       .expert = (unsigned)expert,
                       .more = more,
                       .more_count = tool_values(call, "more", more, MORE_MOST)};
  return true;
}

static void load_report(const struct tool_call *call, const gemmd_weight_info *info) {
  if (call->json) {
    json_t *object = ctl_weight_json(info);
    json_object_set_new(object, "shared", json_boolean(info->shared));
    print_json(call->out, object);
    return;
  }
  char bytes[PRINT_UNIT_BYTES], experts[32] = "";
  const char *format = word_text(words_format, (int)info->format);
  print_bytes(info->bytes, bytes);
  if (info->experts > 0)
    snprintf(experts, sizeof experts, "%u experts of ", info->experts);
  if (info->shared)
    fprintf(call->out, "%s: %s%lld x %lld as %s; equal content was there already, %s shared by %u name%s\n", info->name,
            experts, (long long)info->n, (long long)info->k, format, bytes, info->references,
            print_plural(info->references));
  else if (info->devices > 1)
    fprintf(call->out, "%s: %s%lld x %lld as %s, %s on %u devices\n", info->name, experts, (long long)info->n,
            (long long)info->k, format, bytes, info->devices);
  else
    fprintf(call->out, "%s: %s%lld x %lld as %s, %s\n", info->name, experts, (long long)info->n, (long long)info->k,
            format, bytes);
}

static enum tool_exit load_tensor(struct tool_call *call) {
  gemmd_load load;
  const char *more[MORE_MOST];
  if (!take_options(call, &load, more))
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

static enum tool_exit run_load(struct tool_call *call) {
  return tool_value(call, "tensor") != NULL ? load_tensor(call) : load_model(call);
}

static const struct tool_option load_options[] = {
    {"format", "FORMAT",
#define FORMAT(number, name, word, ...) word ", "
#include "../../../proto/formats.def"
     "or of a model stored: as it is in the file", false},
    {"scale", "MODE",
     "one, row, block, group; int4: group64, group32, each with -bf16, -zeros or -zeros-f16 behind; else what the file "
     "has, or the format's own",
     false},
    {"method", "METHOD", "absmax, least-squares or ternary, where the file is not quantized", false},
    {"replace", NULL, "even where a name stands for other content; of a model, its prefix' other names go", false},
    {"trust-size-and-time", NULL, "do not read files whose size and times are those of an earlier load of yours",
     false},
    {"placement", "WHERE", "on several devices: replicas, or split by its rows; single if not given", false},
    {"devices", "N", "how many, for that; else all", false},
    {"device", "N", "number of the device, or of the first; else the daemon chooses", false},
    {"mode", "MODE", "who may use it: private, or all, which takes an admin; else all if an admin loads it", false},
    {"tensor", "NAME", "this tensor alone, of one FILE; the next five go with it", false},
    {"name", "NAME", "to be known by; the tensor's name if not given", false},
    {"scale-tensor", "NAME", "tensor with the scales; else by the usual names", false},
    {"more", "NAME", "a tensor whose rows follow; may be repeated", false},
    {"experts", "E", "of so many experts: {} in the tensors' names is a number, or tensors are [.., N, K]", false},
    {"expert", "FIRST", "the number of the first; 0 if not given", false},
    {"pattern", "GLOB", "of a model: the weights to load; all if not given. This and the next four may be repeated",
     false},
    {"exclude", "GLOB", "those not to load", false},
    {"rule", "GLOB=FORMAT", "for these; the first that matches counts; a scale mode and a method may follow, by commas",
     false},
    {"fuse", "A,B=C", "weights of these last names become one: q_proj,k_proj,v_proj=qkv_proj", false},
    {"columns", "GLOB", "whose columns are cut by --rank; else those of o_proj and down_proj; of others rows", false},
    {"rules", "FILE", "more rules, one a line", false},
    {"prefix", "TEXT", "before the names of the model", false},
    {"rank", "R", "of every weight the part of rank R, from 0", false},
    {"of", "N", "of so many", false},
    {"join-experts", NULL, "weights that differ in the number behind experts. alone become one with experts", false},
    {"split-experts", NULL, "--rank takes its share of them, whole, not a part of each", false},
    {"keep-going", NULL, "leave out what cannot be loaded, and list it", false},
    {0},
};

const struct tool_command ctl_load = {
    .name = "load",
    .arguments = "FOLDER|FILE...",
    .least = 1,
    .most = INT_MAX,
    .summary = "Loads the weights of a model (safetensors, GGUF), all or none, or one tensor of a file; quantizes\n"
               "on the way what is not quantized.",
    .options = load_options,
    .example = "gemmctl load llama/ --format fp8 --prefix llama. --exclude '*embed_tokens*'",
    .keys = "  weights, shared: how many, and of these with content that was there already; dropped: names that\n"
            "  went; bytes, names; failed: a list of {name, status, error}. With --tensor:\n"
            "  " CTL_WEIGHT_KEYS ";\n  shared: true where equal content was there already and nothing was stored",
    .run = run_load,
};
