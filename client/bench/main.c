/* gemm-bench: what gemmd can do under load. */
#include "serve.h"

static const struct tool_option serve_options[] = {
    {"weight", "NAME", "a loaded weight; several with commas between are asked for in turn, at random", true},
    {"m", "M", "rows of x in each product, or how often which: 1:8,16:1; 1 if not given", false},
    {"clients", "C", "processes that ask; 1 if not given", false},
    {"in-flight", "D", "products that each client has under way; 1 if not given", false},
    {"seconds", "S", "how long is measured; 5 if not given", false},
    {"requests", "N", "in place of --seconds: so many products, of all clients together", false},
    {"rate", "R", "products a second, of all clients, asked for at random times; else as fast as they are answered",
     false},
    {"pause", "US", "microseconds that a client sleeps after each answer", false},
    {"warmup", "S", "seconds before that, not measured; 0.5 if not given", false},
    {"x-type", "TYPE", "f32, f16, bf16, int8 or e4m3; f32 if not given", false},
    {"y-type", "TYPE", "f32, f16, bf16 or s32; f32 if not given", false},
    {"histogram", NULL, "how many calls took how long, too", false},
    {"compare", "inprocess", "the same product inside one process, before", false},
    {0},
};

static const struct tool_command commands[] = {
    {.name = "serve",
     .arguments = "",
     .summary = "Clients, each a process of its own, ask for products as fast as they are answered.",
     .options = serve_options,
     .example = "gemm-bench --weight mlp.up --m 1 --clients 4 --seconds 5 --json",
     .keys =
         "  weight, format, n, k (several weights: a list, weights, of these), backend, x_type, y_type, m, clients,\n"
         "  in_flight, rate, seconds, requests, failures, rows_per_s, latency_us (of the whole call; with --rate "
         "since\n"
         "  it was due), overhead_us (of the call less the backend's own time), device_us (the backend's own time),\n"
         "  socket_us (a byte over a Unix socket and back, with the same pauses): {p50, p99, p999, mean, max, "
         "buckets},\n"
         "  inprocess: {best_us, to_best, obvious_us, to_obvious, kernel_us, over_kernel_us}: medians and ratios",
     .run = bench_serve},
    {0},
};

int main(int argc, char **argv) {
  static const struct tool gemm_bench = {.name = "gemm-bench",
                                         .summary = "Measures gemmd under load. Without a COMMAND: serve.",
                                         .commands = commands,
                                         .first_is_default = true};
  return tool_main(&gemm_bench, argc, argv);
}
