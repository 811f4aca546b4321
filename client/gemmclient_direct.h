/* gemmclient-direct: products computed in this process, by gemmd's kernels on gemmd's weights. Beside gemmclient.h;
 * this header is the manual.
 *
 * gemmd keeps a weight in memory that other processes can map. This library borrows it: it maps the weight, for reading
 * only, and launches the kernels itself, on a stream of the caller's and on tensors where they lie. No request
 * travels, nothing is copied, and a CUDA graph can record the products. Where gemmd serves with the CPU backend, the
 * same functions compute on this process's own cores.
 *
 *   gemmd_direct *direct = NULL;
 *   gemmd_direct_options options = {.bytes = sizeof options, .ordinal = -1, .lanes = 1, .rows_most = 512};
 *   if (gemmd_direct_open(session, &options, &direct) != GEMMD_OK) { puts(gemmd_direct_error()); ... }
 *   gemmd_direct_weight *weight = NULL;
 *   gemmd_direct_borrow(direct, "mlp.up", &weight);
 *   gemmd_direct_product product = {.bytes = sizeof product, .m = m, .x = x, .x_type = GEMMD_BF16,
 *                                   .y = y, .y_type = GEMMD_BF16};
 *   if (gemmd_direct_matmul(weight, &product, stream) != GEMMD_OK) puts(gemmd_direct_error());
 *
 * It takes a right: gemmd's option `direct` (see gemmd.conf) says who may borrow, others are told PERMISSION. Who has
 * borrowed a weight could write to its memory by other means than this library, so it is for users whom gemmd trusts.
 *
 * CUDA: the library needs the NVIDIA driver (libcuda.so.1) when it is opened, and nothing of CUDA to be built or linked
 * against. `stream` is a CUstream or a cudaStream_t of the device's primary context, which is what the CUDA
 * runtime uses; NULL is the legacy default stream. Tensors are device memory. The calling thread's current context
 * and device are after every call what they were before; a thread needs none. A cuBLASLt that this process has loaded
 * already is used.
 *
 * CUDA graphs: a product may be asked for while the stream is capturing. The graph then holds its lane and its weight:
 * gemmd_direct_return and gemmd_direct_close say BUSY until the graph, and every one instantiated from it, has been
 * destroyed (the driver takes a moment longer to say so). A graph keeps the lane that it was captured with: graphs of
 * one lane, and products of it that are asked for beside, must not run at the same time.
 *
 * Lanes: what a product needs beside its tensors (quantized x, partial sums) lies in memory that is taken when weights
 * are borrowed, one set a lane. All products of a lane are queued on one stream, or on several that wait for one
 * another; on streams that run side by side each needs a lane of its own.
 *
 * When gemmd dies, is stopped or upgraded, products go on as before: the memory stays as long as anybody has it. The
 * session finds the next gemmd by itself (gemmd_options.reconnect_ms) and tells it what is borrowed.
 *
 * Results: every function that can fail returns GEMMD_OK or a negative status of gemmclient.h, and leaves a sentence
 * for gemmd_direct_error in this thread. What is wrong with a product is found before anything of it is queued.
 *
 * Threads: gemmd_direct_open, _borrow, _look, _tune, _return and _close use the session, which belongs to one thread at
 * a time. gemmd_direct_matmul and _run do not: any number of threads may call them at once, each with lanes of its own.
 */
#pragma once

#include "gemmclient.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gemmd_direct gemmd_direct;               /* one device of this process */
typedef struct gemmd_direct_weight gemmd_direct_weight; /* a borrowed weight, mapped for reading */
typedef struct gemmd_direct_kernel gemmd_direct_kernel; /* one that a call may name */
typedef struct gemmd_direct_plan gemmd_direct_plan;

typedef struct gemmd_direct_options {
  size_t bytes;      /* sizeof(gemmd_direct_options) */
  int ordinal;       /* cuda: the device as this process counts them; -1: that of the current context, else 0 */
  int lanes;         /* 1..16; 0: 1 */
  int64_t rows_most; /* M of a product at most; what a lane takes grows with it. 0: 512 */
  int threads;       /* cpu: that compute, the caller's counted; 0: one for each core that this process may use */
  /* cpu: an engine's own threads, which compute in place of the library's: beside threads of an engine that spin
   * between its operations, others would wait for a core. It calls part(task, i, parts) for each i of 0..parts - 1, all
   * at the same time (parts wait for one another), and returns when all have returned; parts is 2..threads. Called by
   * the thread that asks for a product. NULL: the library starts threads of its own. */
  void (*parallel)(void *context, int parts, void (*part)(void *task, int part, int parts), void *task);
  void *parallel_context;
  int64_t pairs_most; /* m * T of a product over experts at most; what a lane takes grows with it. 0: there are none */
} gemmd_direct_options;

/* Opens a device for products. It belongs to the session, which must outlive it. With CUDA it is gemmd's device by its
 * UUID that weights are borrowed from, whatever CUDA_VISIBLE_DEVICES says. UNSUPPORTED where gemmd serves on GPUs and
 * this process has no NVIDIA driver, or this library was built without CUDA; INVALID names the option. */
GEMMD_API int gemmd_direct_open(gemmd_session *session, const gemmd_direct_options *options, gemmd_direct **out);
/* Gives all weights back. BUSY, with all as it was, while a graph lives that has recorded a product; what is queued
 * must have ended. NULL is fine. */
GEMMD_API int gemmd_direct_close(gemmd_direct *direct);

/* Borrows the weight of that name from gemmd. Its content stays as it is until it is given back, also when the name is
 * unloaded or replaced meanwhile. NOT_FOUND; PERMISSION; UNSUPPORTED where it lies on another device, in parts on
 * several, or in a layout that this build does not know: gemmd itself still serves it. NOMEM where its pages, or
 * the lanes' memory for it, cannot be had. */
GEMMD_API int gemmd_direct_borrow(gemmd_direct *direct, const char *name, gemmd_direct_weight **out);
/* Unmaps it when nothing else of its memory is borrowed. No product by it may be under way. BUSY, with all as it was,
 * while a graph lives that has recorded one, or a plan that names it. NULL is fine. */
GEMMD_API int gemmd_direct_return(gemmd_direct_weight *weight);
/* N, K, format and so on; devices is 1. Valid until the weight is given back. */
GEMMD_API const gemmd_weight_info *gemmd_direct_get_info(const gemmd_direct_weight *weight);

/* Whether gemmd still has the same memory, and whether it is to be trusted; as last heard of by any call of the session
 * that takes in what gemmd says (gemmd_dispatch). Where gemmd was started anew meanwhile, its table of kernels is found
 * here. */
GEMMD_API enum gemmd_borrowed_state gemmd_direct_look(gemmd_direct_weight *weight);

/* y [m, n] = x [m, k] * W^T (+ bias [n]), row-major; what a weight takes stands in gemmclient.h. x, y, bias
 * and x_scale are aligned to 16 bytes; y overlaps none of them. Where a kernel reads x itself, rows are copied first
 * unless x_stride is a multiple of 16 and K one of 16, of 128 where W has 2 or 4 bits. */
typedef struct gemmd_direct_product {
  size_t bytes; /* sizeof(gemmd_direct_product) */
  int64_t m;    /* 1..rows_most */
  const void *x;
  void *y;
  const void *bias;          /* NULL: none */
  const float *x_scale;      /* for x of type int8 or e4m3: [m], or [m, ceil(k/128)] for block scales */
  size_t x_stride, y_stride; /* bytes from row to row; 0: dense */
  enum gemmd_type x_type, y_type, bias_type;
  int lane;                          /* 0..lanes-1 */
  const gemmd_direct_kernel *kernel; /* of this weight; NULL: the library's choice */
} gemmd_direct_product;

/* Queues the product on `stream` and returns: it computes when the stream comes to it, and the tensors must stay as
 * they are until then. CPU: `stream` is ignored, and the product has been computed when the call returns. INVALID or
 * UNSUPPORTED name the field; BUSY: another thread is queueing a product of the lane; DEVICE_LOST: this process's
 * context is beyond use. */
GEMMD_API int gemmd_direct_matmul(gemmd_direct_weight *weight, const gemmd_direct_product *product, void *stream);

/* A kernel for products by this weight with these types and up to `m` rows, of one bucket (see gemmctl tune), as
 * gemmctl prints it: "hopper tile_n=16 stages=6" (family, parameters; those not named at their fallback). It needs no
 * right, changes nothing for anybody else, and belongs to the weight. UNSUPPORTED with the reason where it cannot
 * compute that; INVALID names the parameter. */
GEMMD_API int gemmd_direct_kernel_find(gemmd_direct_weight *weight, int64_t m, enum gemmd_type x_type,
                                       enum gemmd_type y_type, enum gemmd_type bias_type, const char *text,
                                       gemmd_direct_kernel **out);

/* Without one the library takes the kernel that gemmd_direct_tune has found, else the one that gemmd has found and
 * published for the shape, or where there is none the backend's own choice; gemmd is told of shapes that are computed
 * for the first time, and finds kernels for them when the device is idle. This number changes whenever something was
 * found: products from then on use it, CUDA graphs keep what they have recorded. 0: nothing was, so far. */
GEMMD_API uint64_t gemmd_direct_generation(const gemmd_direct *direct);

typedef struct gemmd_direct_tuning {
  size_t bytes;        /* sizeof(gemmd_direct_tuning) */
  const int64_t *rows; /* M of products to come, 1..rows_most; those of one bucket (see gemmctl tune) count once */
  unsigned row_count;
  enum gemmd_type x_type, y_type, bias_type; /* of these products; bias_type NONE: without bias */
  uint32_t budget_ms;                        /* for all rows together, about; 0: 1000 */
  int lane;                                  /* whose memory is used */
} gemmd_direct_tuning;

/* Looks for the fastest kernels for products by this weight, here and now: an engine's warm-up. Candidates are kernels
 * of this library and of cuBLASLt; each is compared with the library's own choice before its time is taken, with all
 * weights of the same shape that this process has borrowed in turn, as a model reads them. What is found is used at
 * once by all weights of the shape in this process, before what gemmd publishes, for as long as it is open; gemmd is
 * told, tries it itself when the device is idle, and publishes what has proved. *found, which may be NULL: buckets for
 * which another kernel is used now than before.
 *
 * Computes in memory and on a stream of its own; no product of the lane may be under way, while other lanes, and other
 * users of the device, only make times less exact. A stream that another thread is capturing is left alone; graphs keep
 * what they have recorded, so tune before. INVALID and UNSUPPORTED name the field; BUSY: another thread is queueing
 * a product of the lane; NOMEM: no memory for x and y; what was found before is kept. */
GEMMD_API int gemmd_direct_tune(gemmd_direct_weight *weight, const gemmd_direct_tuning *tuning, unsigned *found);

/* Says that this process gives the device nothing to do for so long, at most an hour: gemmd need not wait to see it
 * idle before it tunes there what was computed for the first time. The next product here ends the pause; so does 0.
 * Replays of CUDA graphs do not: say 0 before. Any thread; nothing happens where gemmd does not listen. */
GEMMD_API void gemmd_direct_quiet(gemmd_direct *direct, uint32_t milliseconds);

/* ---- plans: sequences of products in which the result of one is x of the next; gemmclient.h says what is computed */

typedef struct gemmd_direct_step {
  gemmd_direct_weight *weight;
  enum gemmd_type y_type; /* F32, F16 or BF16; one that the next step's weight takes as x */
  const void *bias;       /* [n], where the device reads it whenever the plan runs; NULL: none */
  enum gemmd_type bias_type;
  enum gemmd_activation activation;
  bool gated;
} gemmd_direct_step;

/* A plan of 1..16 steps by weights of one gemmd_direct, to which it belongs. Any thread, any lane may run it. INVALID
 * and UNSUPPORTED name step and field; NOMEM. */
GEMMD_API int gemmd_direct_plan_create(const gemmd_direct_step *steps, unsigned count, gemmd_direct_plan **out);
/* When no run of it is under way. NULL is fine. */
GEMMD_API void gemmd_direct_plan_free(gemmd_direct_plan *plan);
/* As gemmd_direct_matmul: x is [m, k] of the first step, y is what the last one gives, of its y_type; `bias` and
 * `kernel` must be NULL. */
GEMMD_API int gemmd_direct_run(gemmd_direct_plan *plan, const gemmd_direct_product *product, void *stream);

/* ---- experts; gemmclient.h says what is computed */

typedef struct gemmd_direct_experts {
  size_t bytes;         /* sizeof(gemmd_direct_experts) */
  const int32_t *ids;   /* [m, T], where the device reads them when the stream comes to it; the host never does */
  const float *routing; /* [m, T], there, too; NULL: 1 */
  uint32_t top;         /* T, 1..E; m * T is at most pairs_most */
  bool x_pairs, sum;    /* as in gemmd_experts */
  uint32_t *skipped;    /* where the device adds the number of pairs whose id is no expert; NULL: nobody counts */
} gemmd_direct_experts;

/* As gemmd_direct_matmul and gemmd_direct_run, graphs included: how many rows an expert gets is known to the device
 * alone. x is f32, f16 or bf16, bias [E, n], `kernel` NULL; ids, routing and `skipped` are aligned to 16 bytes, the
 * last to 4. */
GEMMD_API int gemmd_direct_experts_matmul(gemmd_direct_weight *weight, const gemmd_direct_product *product,
                                          const gemmd_direct_experts *experts, void *stream);
GEMMD_API int gemmd_direct_experts_run(gemmd_direct_plan *plan, const gemmd_direct_product *product,
                                       const gemmd_direct_experts *experts, void *stream);

/* The sentence of the last failure of these functions in this thread; "" before any. */
GEMMD_API const char *gemmd_direct_error(void);

#ifdef __cplusplus
}
#endif
