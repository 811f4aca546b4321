/* gemmctl: the command line of gemmd. */
#include "ctl.h"

static const struct tool_option load_options[] = {
    {"tensor", "NAME", "tensor in the file", true},
    {"format", "FORMAT", "int8, fp8, int2, f16 or bf16", true},
    {"name", "NAME", "to be known by; the tensor's name if not given", false},
    {"scale", "MODE", "one, row, block or group; else what the file has, or the format's own", false},
    {"scale-tensor", "NAME", "tensor with the scales; else by the usual names", false},
    {"method", "METHOD", "absmax, least-squares or ternary, where the file is not quantized", false},
    {"replace", NULL, "even where the name stands for other content", false},
    {"device", "N", "number of the device; else the daemon chooses", false},
    {0},
};

static const struct tool_option matmul_options[] = {
    {"x", "FILE", "rows of x, raw and row-major; - is stdin", true},
    {"y", "FILE", "where y goes, raw and row-major; - is stdout", true},
    {"m", "M", "rows of x; else as many as the file holds", false},
    {"x-type", "TYPE", "f32, f16, bf16, int8 or e4m3; f32 if not given", false},
    {"y-type", "TYPE", "f32, f16, bf16 or s32; f32 if not given", false},
    {"x-scale", "FILE", "f32 scales of an int8 or e4m3 x: one a row, with block scales one a 1x128; else all 1", false},
    {"bias", "FILE", "N raw numbers, added to every row of y", false},
    {"bias-type", "TYPE", "f32, f16 or bf16; f32 if not given", false},
    {0},
};

static const struct tool_option ping_options[] = {
    {"count", "N", "round trips; 1 if not given", false},
    {0},
};

static const struct tool_command commands[] = {
    {.name = "status",
     .arguments = "",
     .summary = "The state of the daemon and its devices.",
     .example = "gemmctl status",
     .keys = "  server, backend, backend_reason, pid, uptime_ms, sessions, names, weights, weight_bytes, arena_bytes,\n"
             "  devices: a list of {device, name, state, pid, restarts, memory_total, memory_slabs, memory_used,\n"
             "  requests, rows, failures, device_ns, products: computed, each for one request or several}",
     .run = ctl_status},
    {.name = "weights",
     .arguments = "[PATTERN]",
     .most = 1,
     .summary = "The weights, by name; PATTERN as in file names: 'layer.*'.",
     .example = "gemmctl weights 'encoder.layer.0.*'",
     .keys = "  weights: a list of " CTL_WEIGHT_KEYS,
     .run = ctl_weights},
    {.name = "load",
     .arguments = "FILE",
     .least = 1,
     .most = 1,
     .summary = "Loads one tensor of a safetensors file as a weight, quantizing it on the way.",
     .options = load_options,
     .example = "gemmctl load model.safetensors --tensor encoder.layer.0.output.dense.weight --format int8 --name out",
     .keys = "  " CTL_WEIGHT_KEYS ";\n  shared: true where equal content was there already and nothing was stored",
     .run = ctl_load},
    {.name = "unload",
     .arguments = "NAME",
     .least = 1,
     .most = 1,
     .summary = "Drops a name; the last one frees the memory.",
     .example = "gemmctl unload out",
     .keys = "  name, freed: bytes that went back to the device",
     .run = ctl_unload},
    {.name = "matmul",
     .arguments = "NAME",
     .least = 1,
     .most = 1,
     .summary = "Computes y = x * W^T from and to files; the report goes to stderr where y is stdout.",
     .options = matmul_options,
     .example = "gemmctl matmul out --x rows.f32 --y result.f32",
     .keys = "  weight, format, m, n, k, x_type, y_type, device_ns: the backend's own time, all rows",
     .run = ctl_matmul},
    {.name = "ping",
     .arguments = "",
     .summary = "Whether gemmd answers, and how fast.",
     .options = ping_options,
     .example = "gemmctl ping --count 100",
     .keys = "  count, round_trip_ns: {min, median, max}",
     .run = ctl_ping},
    {.name = "version",
     .arguments = "",
     .summary = "The versions of gemmctl, of the library, and of gemmd where it answers.",
     .example = "gemmctl version",
     .keys = "  gemmctl, library, server: null where gemmd does not answer",
     .run = ctl_version},
    {0},
};

int main(int argc, char **argv) {
  static const struct tool gemmctl = {
      .name = "gemmctl", .summary = "Looks at gemmd, and loads, uses and drops its weights.", .commands = commands};
  return tool_main(&gemmctl, argc, argv);
}
