/* gemm-bench: what gemmd can do under load. */
#include "kernels.h"
#include "serve.h"

static const struct tool_option serve_options[] = {
    {"weight", "NAME", "a loaded weight; several with commas between are asked for in turn, at random", true},
    {"plan", "LIST", "one plan of the weights in their order: what stands behind each, swiglu,none", false},
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
    {"tensors", "WHERE", "host or gpu: where x and y lie; host if not given", false},
    {"histogram", NULL, "how many calls took how long, too", false},
    {"compare", "inprocess", "the same product inside one process, before", false},
    {0},
};

static const struct tool_option kernels_options[] = {
    {"backend", "NAME", "auto, cpu or cuda; auto if not given", false},
    {"formats", "LIST", "of weights; int8,fp8,int2,int2a8,f16,bf16 if not given", false},
    {"shapes", "LIST", "NxK of weights; 4096x4096,11008x4096,1536x384 if not given", false},
    {"m", "LIST", "rows of x; 1,8,64,512 if not given", false},
    {"file", "FILE", "in their place: lines of three such lists, formats, shapes and M", false},
    {"scale", "MODE", "of weights, as gemmctl load has it; row, group below 8 bits, if not given", false},
    {"x-type", "TYPE", "of x; cpu: f32, cuda: codes, f16 for 2 bits, if not given. Quantizing other types counts",
     false},
    {"y-type", "TYPE", "of y; cpu: f32, cuda: bf16 for fp8, f16, if not given", false},
    {"kernel", "WHICH", "cuda: own (that the backend takes by itself, if not given), tuned, or all", false},
    {"family", "NAME",
     "cuda: of its kernels alone, also of those that are not offered here: its own first, or by --kernel", false},
    {"bias", NULL, "a bias, f32; cuda: beside the library's sums with a pass behind them, cpu: beside none", false},
    {"dependent", NULL, "cuda: W may be read before the kernel ahead has ended", false},
    {"quantizer", NULL, "cuda: in place of products, quantizing rows of x beside a plain kernel of the same bytes",
     false},
    {"experts", "E", "products over weights with so many experts; cpu: beside dense ones of ours of as many bytes",
     false},
    {"top", "T", "experts that each row takes; 1 if not given", false},
    {"sorted", NULL, "cuda: rows lie sorted by expert, as the kernel reads them, before the clock runs", false},
    {"zipf", "S", "how uneven they are taken: Zipf's exponent; 0, evenly, if not given", false},
    {"plot", "FILE", "cuda: an SVG of time over roofline by M", false},
    {"rounds", "N", "turns of each side; 7 if not given", false},
    {"burst-ms", "MS", "length of a turn; cpu: 40, cuda: 2 if not given", false},
    {"cold-mib", "MIB", "weights taken in turn, so that none is in a cache; cpu: 160, cuda: 256 if not given", false},
    {"threads", "N", "cpu: of each side; 0, if not given: one a core", false},
    {"clock", "WHICH",
     "wall, or cpu with --threads 1: the least processor time of all turns, for a machine that others use, too; "
     "wall if not given",
     false},
    {"peer", "PATH",
     "oneDNN to compare with, or none, or ggml=PATH of libggml-cpu.so; oneDNN's usual name if not given", false},
    {0},
};

static const struct tool_command serve_command = {
    .name = "serve",
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
        "  tensors, checked: {products, difference} (y after the load, against the same products alone from host "
        "memory:\n"
        "  ||y - alone|| / ||alone|| of the worst row), with --rate machine_us, machine_taken (see\n"
        "  gemm-bench(1)),\n"
        "  inprocess: {best_us, to_best, obvious_us, to_obvious, kernel_us, over_kernel_us}: medians and ratios;\n"
        "  of a plan kernel_us are its kernels one after the other, and plan_us and plan_to_kernel the plan on the "
        "device",
    .run = bench_serve,
};

static const struct tool_command kernels_command = {
    .name = "kernels",
    .arguments = "",
    .summary =
        "Measures a backend's products in this process, without a daemon, and in the same run, in turn, those\n"
        "of a library: oneDNN for cpu, which does not quantize x, where ours does; cuBLASLt for cuda, its first\n"
        "and its fastest algorithm.",
    .options = kernels_options,
    .example = "gemm-bench kernels --backend cpu --formats int8,fp8 --m 1,64",
    .keys =
        "  cpu: a line each: backend, format, scale, n, k, m, us, gb_per_s (of the weight), gop_per_s, roof_us "
        "(0:\n"
        "  not known), and where there is a peer: peer, peer_type, peer_us, ratio (peer's time / ours, median over "
        "neighbouring turns), or where\n"
        "  it has no such product: peer_absent, why.\n"
        "  cuda: device, read_gb_per_s, dependent, bias; then a line each: backend, format, scale, n, k, m, x_type,\n"
        "  y_type, us, roof_us, kernel, rivals: [{name, us, first_us, ratio}]; then means: mean_of, rival, m (0: "
        "all), count,\n"
        "  geometric, worst. With --quantizer: quantizer, x_type, m, k, us, gb_per_s, plain_us",
    .run = bench_kernels,
};

static const struct tool_option tensors_options[] = {
    {"sides", "LIST", "M and N, each with each; 64,128,256 if not given", false},
    {"k", "LIST", "K; 25088,200704,1605632 if not given", false},
    {"seconds", "S", "for the search of each; 4 if not given", false},
    {"turned", NULL, "x is [k, m] and W [k, n], for which there is no library beside", false},
    {0},
};

static const struct tool_command tensors_command = {
    .name = "tensors",
    .arguments = "",
    .summary = "Products of two tensors on the GPU, f16 with y in f32, as in the gradients of weights: the fastest of\n"
               "all kernels of ours, and of all cuBLASLt has in every number of slices, in turns.",
    .options = tensors_options,
    .example = "gemm-bench tensors --sides 64,256 --k 200704",
    .keys = "  a line each: shape, us, gb_per_s (of x and W), kernel, off (the worst row, by the plain kernel), "
            "library_us,\n"
            "  library_kernel, library_tried, ratio (library / ours, median of turns; 0: none); then cases, geometric, "
            "worst",
    .run = bench_tensors,
};

static const struct tool_command *const commands[] = {&serve_command, &kernels_command, &tensors_command, NULL};

int main(int argc, char **argv) {
  static const struct tool gemm_bench = {.name = "gemm-bench",
                                         .summary = "Measures gemmd under load. Without a COMMAND: serve.",
                                         .commands = commands,
                                         .first_is_default = true};
  return tool_main(&gemm_bench, argc, argv);
}
