/* gemmctl: the command line of gemmd. */
#include "ctl.h"

#include <limits.h>

static const struct tool_option weights_options[] = {
    {"tree", NULL, "by the parts of their names, with sums", false},
    {0},
};

static const struct tool_option load_options[] = {
    {"format", "FORMAT", "int8, fp8, int2, f16, bf16 or int2a8; of a model also stored: as it is in the file", false},
    {"scale", "MODE", "one, row, block or group; else what the file has, or the format's own", false},
    {"method", "METHOD", "absmax, least-squares or ternary, where the file is not quantized", false},
    {"replace", NULL, "even where a name stands for other content; of a model, its prefix' other names go", false},
    {"placement", "WHERE", "on several devices: replicas, or split by its rows; single if not given", false},
    {"devices", "N", "how many, for that; else all", false},
    {"device", "N", "number of the device, or of the first; else the daemon chooses", false},
    {"mode", "MODE", "who may use it: private, or all, which takes an admin; else all if an admin loads it", false},
    {"tensor", "NAME", "this tensor alone, of one FILE; the next two go with it", false},
    {"name", "NAME", "to be known by; the tensor's name if not given", false},
    {"scale-tensor", "NAME", "tensor with the scales; else by the usual names", false},
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
    {"keep-going", NULL, "leave out what cannot be loaded, and list it", false},
    {0},
};

static const struct tool_option quantize_options[] = {
    {"format", "FORMAT", "int2", true},
    {"output", "FILE", "where the codes go: a safetensors file that `load` takes", true},
    {"method", "METHOD", "gptq, or round: the least squared error of the weights; gptq if not given", false},
    {"calibration", "FILE", "safetensors: rows of x that each layer sees, [.., K], under its weight's name", false},
    {"evaluate", "FILE", "the same with other rows, to measure errors with; else the calibration's", false},
    {"tensor", "PATTERN", "which weights; all that there are rows for if not given", false},
    {"damping", "D", "of the mean of the Hessian's diagonal is added to it; 0.01 if not given", false},
    {"threads", "N", "as many as there are processors if not given", false},
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

static const struct tool_option tune_options[] = {
    {"device", "N", "number of the device; 0 if not given", false},
    {"m", "M", "rows of x; 1 if not given", false},
    {"x-type", "TYPE", "f32, f16, bf16, int8 or e4m3; f16 if not given", false},
    {"y-type", "TYPE", "f32, f16, bf16 or s32; f16 if not given", false},
    {"bias-type", "TYPE", "f32, f16 or bf16; no bias if not given", false},
    {"exhaustive", NULL, "measure the whole product of parameters, not the best guesses", false},
    {"kernel", "TEXT", "a kernel by hand: family and parameters, as `tune list` shows them", false},
    {"block-m", "N", "16..512, step 16; 128. These describe a kernel by hand, too", false},
    {"block-n", "N", "16..512, step 16; 128", false},
    {"block-k", "N", "16..512, step 16; 64", false},
    {"group-size-m", "N", "1..64; 8", false},
    {"num-warps", "N", "1..16; 4", false},
    {"num-stages", "N", "1..8; 4", false},
    {"split-k", "N", "1..128; 1", false},
    {"split-k-mode", "MODE", "serial, parallel or parallel-y; serial", false},
    {"pin", NULL, "set the kernel by hand for the weights that match", false},
    {"unpin", NULL, "take it off", false},
    {"html", "FILE", "with report: where to write it", false},
    {"microbench", NULL, "time a linear of any size, with random data; the next ones say which", false},
    {"format", "FORMAT", "int8, fp8, int2, int2a8, f16 or bf16; int8", false},
    {"bench-m", "N", "64..16384, step 64; 2048", false},
    {"bench-k", "N", "64..16384, step 64; 2048", false},
    {"bench-n", "N", "64..16384, step 64; 4096", false},
    {"bench-warmup", "N", "1..20; 2", false},
    {"bench-iterations", "N", "2..100; 6", false},
    {"bench-include-scalar", NULL, "weights with one scale as well as with one a row", false},
    {0},
};

static const struct tool_option ping_options[] = {
    {"count", "N", "round trips; 1 if not given", false},
    {"deep", NULL, "load a small weight, multiply with it, check the result and drop it, on every device", false},
    {0},
};

static const struct tool_option metrics_options[] = {
    {"listen", "WHERE", "serve them by HTTP at /metrics: PORT, a loopback ADDRESS:PORT, or the path of a Unix socket",
     false},
    {0},
};

static const struct tool_option top_options[] = {
    {"interval-ms", "N", "between two looks, 100..60000; 1000 if not given", false},
    {"count", "N", "how many looks; else until q is typed", false},
    {0},
};

static const struct tool_command commands[] = {
    {.name = "status",
     .arguments = "",
     .summary = "The state of the daemon and its devices.",
     .example = "gemmctl status",
     .keys =
         "  server, backend, backend_reason, pid, uptime_ms, sessions, names, weights, weight_bytes, arena_bytes,\n"
         "  devices: a list of {device, name, state, pid, restarts, memory_total, memory_slabs, memory_used,\n"
         "  memory_lent: of the slabs, mapped by clients that compute themselves,\n"
         "  memory_copies: weights in an order that a library wants, memory_working: what products under way need,\n"
         "  memory_own: of gemmd's process there beside all that, naps: how often that was closed for having nothing "
         "to do,\n"
         "  quiet: whether direct clients leave it alone, quiet_ms: since when, untuned: shapes of theirs to be "
         "tuned,\n"
         "  verified: comparisons of lent weights, damaged: how many of these were,\n"
         "  down_ms: for how long it has not served, retry_ms: until it is tried again, why: its last worker ended,\n"
         "  requests, rows, failures, device_ns,\n"
         "  products: computed, each for one request or several}",
     .run = ctl_status},
    {.name = "weights",
     .arguments = "[PATTERN]",
     .most = 1,
     .summary = "The weights, by name; PATTERN as in file names: 'layer.*'.",
     .options = weights_options,
     .example = "gemmctl weights 'encoder.layer.0.*'",
     .keys = "  weights: a list of " CTL_WEIGHT_KEYS ",\n  borrowers: a list of {pid, user} of these",
     .run = ctl_weights},
    {.name = "load",
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
     .run = ctl_load},
    {.name = "unload",
     .arguments = "NAME|PATTERN",
     .least = 1,
     .most = 1,
     .summary = "Drops a name, or all that match; the last one of a content frees the memory.",
     .example = "gemmctl unload 'llama.*'",
     .keys = "  name, freed: bytes that went back to the device; of a pattern: pattern, names: how many, freed",
     .run = ctl_unload},
    {.name = "export",
     .arguments = "PATTERN FILE",
     .least = 2,
     .most = 2,
     .summary = "Writes weights as a safetensors file that `load --format stored` takes as they are. For admins.",
     .example = "gemmctl export 'llama.*' llama.safetensors",
     .keys = "  file, written: how many weights",
     .run = ctl_export},
    {.name = "quantize",
     .arguments = "FILE",
     .least = 1,
     .most = 1,
     .summary = "Makes a file of 2-bit weights from a safetensors file; needs no gemmd. Prints the relative errors of\n"
                "the layers' outputs, rounded and by GPTQ.",
     .options = quantize_options,
     .example =
         "gemmctl quantize model.safetensors --format int2 --calibration rows.safetensors --output int2.safetensors",
     .keys = "  tensors: a list of {name, n, k, rows: of activations, rounded, gptq: relative errors of the output}",
     .run = ctl_quantize},
    {.name = "matmul",
     .arguments = "NAME",
     .least = 1,
     .most = 1,
     .summary = "Computes y = x * W^T from and to files; the report goes to stderr where y is stdout.",
     .options = matmul_options,
     .example = "gemmctl matmul out --x rows.f32 --y result.f32",
     .keys = "  weight, format, m, n, k, x_type, y_type, device_ns: the backend's own time, all rows",
     .run = ctl_matmul},
    {.name = "tune",
     .arguments = "list | show PATTERN | export FILE | import FILE | forget PATTERN | watch | report | WEIGHT",
     .most = 2,
     .summary = "Which kernels compute what: looks at it, finds the fastest, or sets one by hand.\n"
                "A WEIGHT's fastest kernel is looked for now; with --pin or --unpin, WEIGHT is a pattern.",
     .options = tune_options,
     .example = "gemmctl tune mlp.up --m 16 --kernel 'cpu threads=2 block_m=16'",
     .keys =
         "  list, show: shapes: a list of {shape, kernel, state, why, serves, confirmed, tuning, calls, device_ns,\n"
         "  own_ns, tuned_ns, library_ns, roof_ns}; watch: one of these a change; WEIGHT: shape, kernel, checked,\n"
         "  wrong, timed, spent_ns, library_first_ns, library_ns, roof_ns, why, results: a list of {kernel, ns,\n"
         "  spread, samples, own, hand}; --microbench: results: a list of {scale, m, n, k, linear_ns, roof_ns, why,\n"
         "  product: a list of {kernel, ns, spread, hand}}; forget: forgotten; export, report: file, written: how\n"
         "  many; import: taken, refused; --pin: pattern, kernel, weights",
     .run = ctl_tune},
    {.name = "ping",
     .arguments = "",
     .summary = "Whether gemmd answers, and how fast; with --deep, whether its devices compute: for health checks.",
     .options = ping_options,
     .example = "gemmctl ping --count 100",
     .keys = "  count, round_trip_ns: {min, median, max}; with --deep: devices: a list of {device, ns}",
     .run = ctl_ping},
    {.name = "metrics",
     .arguments = "",
     .summary = "The daemon's numbers in Prometheus' text format, with or without --json.",
     .options = metrics_options,
     .example = "gemmctl metrics >/var/lib/prometheus/node-exporter/gemmd.prom",
     .keys = "  none: the format is Prometheus' own",
     .run = ctl_metrics},
    {.name = "top",
     .arguments = "",
     .summary = "Devices, rates and waits on the terminal, anew every second; q ends.",
     .options = top_options,
     .example = "gemmctl top",
     .keys = "  none: it takes a terminal",
     .run = ctl_top},
    {.name = "device",
     .arguments = "retry [N]",
     .least = 1,
     .most = 2,
     .summary = "Starts the worker of device N, which has failed, now; without N those of all failed ones. For admins.",
     .example = "gemmctl device retry 0",
     .keys = "  tried: how many devices had failed and waited for that",
     .run = ctl_device},
    {.name = "drain",
     .arguments = "",
     .summary =
         "Ends gemmd when its last session ends; until then it takes no new ones. Waits for the end. For admins.",
     .example = "gemmctl drain",
     .keys = "  drained: true",
     .run = ctl_drain},
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
