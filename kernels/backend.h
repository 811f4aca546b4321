/* What a device can do for the worker, behind one table of functions. `cpu` and `cuda` implement it.
 *
 * Threads: `submit` and `poll` are called by the engine thread only; everything else by other threads,
 * one call at a time, while the engine runs. A backend keeps what both touch apart.
 *
 * Ownership: what `create`, `import`, `register` and `attach` return belongs to the backend and is given back by
 * their counterparts; nothing may be given back while a product that uses it has not been reported by `poll`. */
#pragma once

#include "../proto/gemm.h"
#include "../proto/status.h"
#include "../proto/tensors.h"
#include "variant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend; /* each implementation has its own */
struct backend_slab;
struct backend_weight;
struct backend_arena;
struct backend_event;
struct backend_turns; /* a product that is computed a turn at a time */

enum { BACKEND_IPC_BYTES = 64 }; /* of a handle of CUDA's IPC */

struct backend_config {
  int device;  /* ordinal, from 0; direct: as this process counts, -1: the current context's, else 0 */
  int threads; /* cpu: 0: one for each core that this process may use */
  /* cpu: calls part(task, i, parts) for 0 <= i < parts <= threads, all at the same time, by threads of the caller's;
   * NULL: the backend has threads of its own. */
  void (*parallel)(void *context, int parts, void (*part)(void *task, int part, int parts), void *task);
  void *parallel_context;
  const char *pin;        /* cpu: processors of these threads, see cpu_cores_choose; NULL: none */
  bool small_pages;       /* cpu: weights stay in pages as they come */
  uint64_t library_bytes; /* cpu: of copies of weights in the order that oneDNN wants; 0: it is not used */
  int in_flight;          /* products that `submit` accepts before `poll` returns some, 1..64; lanes of `enqueue` */
  bool tunes;             /* cuda: what `measure` copies weights to is taken by `open`; else when it is first wanted */
  /* For `enqueue` alone, in a process that is not gemmd's: weights are attached from slabs that others made, nothing is
   * stored, and nothing that serving takes (streams, arenas, memory for loading) is opened. */
  bool direct;
  int64_t rows_most;    /* with `direct`: of a job of `enqueue`, at least 1 */
  int64_t pairs_most;   /* with `direct`: M * T of a job with experts; 0: none has */
  const char *cublaslt; /* cuda: library to open; NULL: the usual names */
  const char *nvrtc;    /* cuda: the same */
  /* Where compiled kernels (cuda) and measured roofs (cpu) are kept. NULL: nowhere, and nothing is compiled */
  const char *state_dir;
  /* cuda: told once, by `open` or the engine thread, of what goes on more slowly than it could; NULL: nobody is. */
  void (*warn)(const char *text);
};

/* What the device delivers at most, by what is known of it or by a measurement of memory and arithmetic alone. */
struct backend_roof {
  uint64_t bytes_per_s; /* of its memory; 0: not known */
  /* By the weight's format, with the instructions that products take; a multiplication and an addition are two. 0: not
   * known. */
  uint64_t operations_per_s[GEMM_FORMATS];
};

struct backend_info {
  char name[16]; /* "cpu", "cuda" */
  char device_name[128];
  int devices;               /* of this kind in the machine */
  uint64_t memory_total;     /* bytes */
  uint64_t slab_granularity; /* slab sizes are multiples of it */
  uint8_t uuid[16];          /* of the device; zeros: it has none */
  /* What measured times depend on: device model, its size, driver and library. Letters, digits, `.`, `_`, `-`. */
  char identity[128];
};

/* How a weight lies in a slab. `layout` names the form and its version; a layout that a backend does not know (a
 * newer or older build made it) is refused by `weight_attach`. */
struct backend_plan {
  uint64_t bytes, align;
  uint32_t layout;
};

/* Added to the number of a layout where something is done to x (gemm_weight.input), so that builds that would not do it
 * refuse the weight. */
enum { BACKEND_LAYOUT_INPUT = 0x10000 };

/* One of the products of a sequence: its result, rounded to y_type, then activated and rounded again, is x of the next
 * one. proto/plan.h says what is computed. */
struct backend_step {
  struct backend_weight *weight;
  enum gemm_type y_type, bias_type;
  const void *bias; /* in the job's arena; NULL: none. [N], with experts [E, N] */
  enum gemm_activation activation;
  bool gated;
  const struct variant *variant; /* as a job's */
};

/* W where it is no stored weight but a tensor, as for products of two activations: F16 or BF16, the type of x. */
struct backend_operand {
  struct gemm_weight shape;     /* no scales */
  struct backend_arena *memory; /* where it lies in place of the job's arena, as x_memory; else NULL */
  const void *w;                /* [n, k] */
  uint64_t stride;              /* bytes */
  struct tensors_form form;     /* of x, W and y, its steps and batch explicit; there is no chain then */
};

/* A row (BLOCK: 128 rows) of what weight_convert takes has at most so many bytes. */
enum { BACKEND_CONVERT_BYTES = 8 << 20 };

/* Numbers that a weight is made of: [n, k] of F32, F16 or BF16. */
struct backend_source {
  enum gemm_type type;
  bool ternary; /* INT2: by the mean magnitude; else by least squares */
  /* Reads dense rows, from byte `offset` of the whole on; several threads at a time. Its error is the conversion's. */
  enum status (*read)(void *context, uint64_t offset, void *to, uint64_t bytes, struct error *error);
  void *context;
  /* In the place of `read`, where the device has them: memory of memory_import, memory_open_ipc or arena_register, the
   * first row at `x` in it, rows `stride` bytes apart. They stay as they are until the call returns. */
  struct backend_arena *memory;
  const void *x;
  uint64_t stride;
};

/* Which experts a job takes, as struct gemm_choice of proto/gemm.h says it. Of a sequence: all steps have weights with
 * experts, as many each, and the same pairs; x is as x_pairs says for the first step and pairs for all others, y of all
 * but the last is pairs, sum and routing are of the last. A dense layer of so many rows is what M is without experts:
 * pairs, M * T of them. */
struct backend_experts {
  const int32_t *ids;   /* [M, T], where x lies. The host does not read them where that is memory of the device */
  const float *routing; /* [M, T], there, too; NULL: 1 */
  int64_t top;          /* T */
  bool x_pairs, sum;
  /* enqueue alone, where the device can address it: the number of pairs that were skipped is added. NULL: nobody
   * counts. In submit it is backend_done's. */
  uint32_t *skipped;
};

/* One product, checked by gemm_product_check before. The pointers are into a registered arena; strides are bytes. */
struct backend_job {
  uint64_t tag; /* comes back from poll */
  struct backend_weight *weight;
  /* In the place of a weight, which is NULL then. Such a job has no chain. It stays as it is until poll has reported
   * it. */
  const struct backend_operand *operand;
  struct backend_arena *arena;
  struct backend_arena *x_memory, *y_memory; /* where x or y lies in place of the arena: see memory_import; else NULL */
  int64_t m;
  uint32_t awake; /* cpu: clients that will want a core of their own while it is computed, or when it ends; 0: nobody */
  enum gemm_type x_type, y_type, bias_type;
  const void *x, *bias, *x_scale; /* NULL where there is none */
  void *y;
  uint64_t x_stride, y_stride;
  /* The weight has experts, then x is F32, F16 or BF16, bias [E, N], and there are neither chain nor operand. It stays
   * as it is until poll has reported the job. NULL: it has none. */
  const struct backend_experts *experts;
  /* Rows that are computed in the same product, of an arena of their own; NULL: none. All jobs of such a chain have
   * the same weight and types, or the same steps, and the same bias; they stay as they are until poll has reported the
   * first one, which stands for all. */
  const struct backend_job *next;
  /* A sequence of products instead of one, which stays until poll has reported the job: `weight` is that of the first,
   * `y_type` that of the last, bias and variant are those of the steps. NULL: one product. */
  const struct backend_step *steps;
  uint32_t step_count;
  /* Which kernel computes it: one that variant_check has passed for this weight's shape and these types. NULL: the
   * backend's own choice, which also stands in where the variant does not take this M. */
  const struct variant *variant;
};

/* What `measure` repeats. */
struct backend_timing {
  uint32_t launches;
  bool quantize;  /* x is converted to what the kernel reads, and sorted by expert, in every launch, from the device's
                     memory; cpu: always */
  bool cold;      /* cuda: W is in no cache, by copies of it where there are too few weights and there is room */
  bool dependent; /* cuda: a kernel may read its weight before the one ahead of it has ended */
  int lane;       /* with config.direct, whose memory is used; then all is as enqueue has it, whatever the two say */
};

/* What a variant takes beside its tensors. */
struct backend_needs {
  uint64_t workspace_bytes;
  uint32_t filling; /* slices of K with which its blocks fill the device once; 0: not known, or there are none */
};

struct backend_done {
  uint64_t tag;
  enum status status;
  uint64_t device_ns; /* of the product itself, copies included */
  uint64_t turn_ns;   /* of what has just ended of it: a product, or a turn */
  uint32_t skipped;   /* pairs whose id is no expert; saturates */
  bool goes_on;       /* a turn of turns_submit has ended, and there are more; device_ns is of this turn */
};

struct backend_ops {
  const char *name;
  uint32_t formats; /* of weights that it takes: bits 1 << enum gemm_format */
  bool on_cores;    /* products are computed by the machine's own cores: who waits for them had better sleep */

  /* How many devices this machine has for this backend; 0 with the reason in *error. Starts nothing that outlives
   * the call but the driver. */
  int (*devices)(const struct backend_config *config, struct error *error);
  enum status (*open)(const struct backend_config *config, struct backend **out, struct error *error);
  void (*close)(struct backend *backend);
  void (*describe)(const struct backend *backend, struct backend_info *out);
  /* By the engine thread, between products. cpu: measured when it is first asked on a machine, about 100 ms. */
  void (*roof)(struct backend *backend, struct backend_roof *out);
  /* Bytes that copies of weights in another order take beside the slabs, at the moment. By any thread, and at once,
   * whatever the device does. NULL: there are none. */
  uint64_t (*copies)(const struct backend *backend);
  /* Bytes of the device that the backend has taken for products under way: staging, workspaces, graphs; not what the
   * driver takes for a process. As `copies`. NULL: little. */
  uint64_t (*working)(const struct backend *backend);

  /* The longest stretch, as predicted, for which products have kept the engine thread. As `copies`. NULL: none does. */
  uint64_t (*longest_ns)(const struct backend *backend);

  /* Device memory that outlives this process as long as somebody holds *fd. The caller owns *fd. */
  enum status (*slab_create)(struct backend *backend, uint64_t bytes, int *fd, struct backend_slab **out,
                             struct error *error);
  /* Maps a slab that another process made. `fd` stays the caller's. */
  enum status (*slab_import)(struct backend *backend, int fd, uint64_t bytes, struct backend_slab **out,
                             struct error *error);
  void (*slab_close)(struct backend *backend, struct backend_slab *slab);

  /* Bytes that a weight takes in a slab. */
  enum status (*weight_plan)(struct backend *backend, const struct gemm_weight *weight, struct backend_plan *out,
                             struct error *error);
  /* Writes a canonical weight (see struct gemm_layout; `canonical` has total_bytes) into a slab, in the form of
   * weight_plan. Nobody uses that range yet. */
  enum status (*weight_store)(struct backend *backend, const struct gemm_weight *weight, const void *canonical,
                              struct backend_slab *slab, uint64_t offset, struct error *error);
  /* Quantizes numbers into canonical form, into total_bytes of zeros; the bits are those of proto/weights/quantize.h.
   * The work is in slices, below products. BAD_FILE with row and column for a value that is not finite, or beyond the
   * format; UNSUPPORTED: F16 and BF16 of anything but their own type on the device, INT2 with a scale a row, rows
   * beyond BACKEND_CONVERT_BYTES. NULL: the host does it. */
  enum status (*weight_convert)(struct backend *backend, const struct gemm_weight *weight,
                                const struct backend_source *source, void *canonical, struct error *error);
  /* Makes a stored weight usable. */
  enum status (*weight_attach)(struct backend *backend, const struct gemm_weight *weight, uint32_t layout,
                               struct backend_slab *slab, uint64_t offset, struct backend_weight **out,
                               struct error *error);
  void (*weight_detach)(struct backend *backend, struct backend_weight *weight);
  /* Copies `bytes` of one slab to another, on the device. Nobody uses that range of `to` yet; offsets and bytes are
   * multiples of weight_plan's align. */
  enum status (*slab_copy)(struct backend *backend, struct backend_slab *from, uint64_t from_offset,
                           struct backend_slab *to, uint64_t to_offset, uint64_t bytes, struct error *error);
  /* A 64-bit checksum of the stored bytes, computed by the device. */
  enum status (*weight_checksum)(struct backend *backend, struct backend_weight *weight, uint64_t *out,
                                 struct error *error);

  /* The weight as it was stored, in canonical form; `canonical` has total_bytes of zeros. */
  enum status (*weight_read)(struct backend *backend, struct backend_weight *weight, void *canonical,
                             struct error *error);

  /* Makes a mapped arena known to the device. */
  enum status (*arena_register)(struct backend *backend, void *base, uint64_t bytes, struct backend_arena **out,
                                struct error *error);
  void (*arena_unregister)(struct backend *backend, struct backend_arena *arena);

  /* Maps memory of another process, all `bytes` of it, for x and y: cuda takes device memory that was exported, cpu a
   * memfd that cannot shrink. `fd` stays the caller's. *address: what x and y in it are counted from; the host does not
   * read there. BAD_DESCRIPTOR for anything else, INVALID for `bytes`. */
  enum status (*memory_import)(struct backend *backend, int fd, uint64_t bytes, struct backend_arena **out,
                               void **address, struct error *error);
  /* The same by a handle of CUDA's own IPC, BACKEND_IPC_BYTES. Whoever exported it must keep the memory: where it is
   * freed while a product uses it, the device may be lost. NULL: there is no such thing. */
  enum status (*memory_open_ipc)(struct backend *backend, const uint8_t *handle, uint64_t bytes,
                                 struct backend_arena **out, void **address, struct error *error);
  void (*memory_close)(struct backend *backend, struct backend_arena *memory);

  /* An event of another process, by its IPC handle of as many bytes. NULL, all three: there is no such thing. */
  enum status (*event_open)(struct backend *backend, const uint8_t *handle, struct backend_event **out,
                            struct error *error);
  void (*event_close)(struct backend *backend, struct backend_event *event);
  /* By the engine thread. BUSY until all that was queued before the event was last recorded has ended. Never blocks;
   * anything else than OK and BUSY is the event's own failure. */
  enum status (*event_query)(struct backend *backend, struct backend_event *event);

  /* Starts a product; its end is reported by poll. BUSY where `in_flight` are under way. UNSUPPORTED, INVALID: this
   * product alone. DEVICE_LOST: the device is beyond use, and so is this process. */
  enum status (*submit)(struct backend *backend, const struct backend_job *job, struct error *error);
  /* Reports up to `most` finished products, in any order; returns how many. Never blocks. */
  int (*poll)(struct backend *backend, struct backend_done *done, int most);

  /* ---- products that take long: a turn at a time, with others between; by the engine thread. NULL, all: none does.
   * A backend has turns_next, which computes while the caller waits, or turns_submit.
   * How long `submit` would keep the caller, or the device, rather too long than too short. */
  uint64_t (*predict_ns)(const struct backend *backend, const struct backend_job *job);
  /* Takes a product that is computed by turns_next, with other products between. `job` stays as of submit. BUSY where
   * `most` are under way so, or as many as can be; else as submit. */
  enum status (*turns_begin)(struct backend *backend, const struct backend_job *job, uint32_t most,
                             struct backend_turns **out, struct error *error);
  /* Computes for about `budget_ns`. True: the product has ended, and `turns` is gone; done->status and, where that is
   * not OK, *error say how, and done->device_ns how long it took in all its turns. False: it goes on, and device_ns is
   * of this turn. */
  bool (*turns_next)(struct backend *backend, struct backend_turns *turns, uint64_t budget_ns,
                     struct backend_done *done, struct error *error);
  /* Starts about `budget_ns` of it; poll reports the turn's end. BUSY where `in_flight` turns are under way: none was
   * started. Anything else but OK: the product has ended so, and `turns` is gone. */
  enum status (*turns_submit)(struct backend *backend, struct backend_turns *turns, uint64_t budget_ns,
                              struct error *error);
  /* Nobody wants it any more: it ends with CANCELLED in its next turn. */
  void (*turns_abandon)(struct backend *backend, struct backend_turns *turns);
  /* Nothing has been asked for for a while, and nothing is under way: gives back what products have taken, as `working`
   * tells. By the engine thread. NULL: there is nothing to give back. */
  void (*rest)(struct backend *backend);

  /* With config.direct, in the place of the two before: queues the product on the caller's stream, with x, y, bias and
   * x scale where the device can address them as they are, which is where they must stay until the stream has computed
   * it; so must ids, routing and `skipped` of its experts. No arena, chain or operand of its own; `tag` says nothing.
   * What it needs beside is of `lane`, 0..in_flight-1: a
   * lane is used by one stream at a time, and by one thread; several lanes by several threads at once.
   *
   * cuda: `stream` is a CUstream of the backend's device, which may be capturing. Nothing is allocated, nothing waits,
   * nothing is compiled or loaded: what the variant needs is there since its variant_check. INVALID before
   * anything is queued: `lane`, M beyond rows_most, M * T beyond pairs_most, types; UNSUPPORTED: a stream of another
   * device; BUSY: another thread is using the lane. cpu: `stream` is NULL, and the product has been computed when the
   * call returns; lanes take turns. */
  enum status (*enqueue)(struct backend *backend, int lane, const struct backend_job *job, void *stream,
                         struct error *error);
  /* Whether a graph lives, or is being captured, that has recorded a product by the weight; it must not be detached
   * then. A graph that has recorded any keeps the backend from being closed: `held`. By any thread. NULL, both: there
   * are no graphs. */
  bool (*weight_held)(const struct backend *backend, const struct backend_weight *weight);
  bool (*held)(const struct backend *backend);
  /* With config.direct: memory for x, y and bias of what is measured. Copies go from or to memory of the host, and have
   * ended when the call returns. */
  enum status (*tensor_take)(struct backend *backend, uint64_t bytes, void **out, struct error *error);
  void (*tensor_give)(struct backend *backend, void *tensor); /* NULL is fine */
  enum status (*tensor_copy)(struct backend *backend, void *to, const void *from, uint64_t bytes, struct error *error);
  /* With config.direct, around all other calls but enqueue: what they change of the calling thread (the current
   * context), to be put back. NULL, both: nothing. */
  void *(*caller_save)(void);
  void (*caller_restore)(void *saved);

  /* ---- tuning, by the engine thread
   * Families of kernels, variant_plain first, NULL at the end. */
  const struct variant_family *const *families;
  /* Variants that can run, best guess first; the first is what `submit` would choose by itself. Where `base` is not
   * NULL: those that differ from it in what is searched second (slices of K and the like). `all`: the whole product of
   * parameters instead of the best guesses. Returns how many it wrote, at most `most`; never "plain". */
  int (*variants)(struct backend *backend, const struct variant_problem *problem, const struct variant *base, bool all,
                  struct variant *out, int most);
  /* The variants of a library that takes long to say what it has, its own best guess first; `variants` leaves them out.
   * Computes nothing and touches nothing that serves: a thread other than the engine's may call it, one at a time.
   * NULL: `variants` has them all. */
  int (*library_variants)(struct backend *backend, const struct variant_problem *problem, bool all, struct variant *out,
                          int most);
  /* Variants that have to be built first (variant_foreign), best guess first; `variants` leaves them out. Takes
   * milliseconds. NULL: there are none. */
  int (*compiled_variants)(struct backend *backend, const struct variant_problem *problem, bool all,
                           struct variant *out, int most);
  /* Whether the variant can run for the problem, and fills variant->ready. UNSUPPORTED with the reason otherwise, and
   * *nearest is one that can, or has no family. `nearest` may be NULL. */
  enum status (*variant_check)(struct backend *backend, const struct variant_problem *problem, struct variant *variant,
                               struct variant *nearest, struct error *error);
  /* Of a variant that variant_check has passed. NULL: nothing is known of any. */
  void (*variant_needs)(struct backend *backend, const struct variant_problem *problem, const struct variant *variant,
                        struct backend_needs *out);
  /* True for a variant whose code no test has seen. variant_check passes it where variant_build can make it, but it
   * computes nothing before it has been built; whoever builds it, and runs it first, does so in a process of its own.
   * NULL: there are none. */
  bool (*variant_foreign)(const struct variant *variant);
  /* Makes the variant's code, for other processes too: seconds. NULL with the one before. */
  enum status (*variant_build)(struct backend *backend, const struct variant_problem *problem,
                               const struct variant *variant, struct error *error);
  /* Tensors to try products of two with, filled with numbers in [-1, 1): rows of x as many as problem->m, of which
   * every fifth has the same numbers (OPERANDS_KINDS of kernels/operands.h), and W. job->x, x_stride, x_memory and
   * *operand are filled in; form.x_step and form.w_step lead to *copies of both, as many as take longer to read than a
   * cache holds. TOO_LARGE beyond a quarter of the free memory, NOMEM. tensors_drop gives them back. NULL, both:
   * whoever tries has them in an arena.
   */
  enum status (*tensors_make)(struct backend *backend, const struct variant_problem *problem, struct backend_job *job,
                              struct backend_operand *operand, size_t *copies, struct error *error);
  void (*tensors_drop)(struct backend *backend);
  /* Computes the job as often as `timing` says, one after the other, with weights[i % count] in the place of the
   * job's (a sequence: with its own; a job with an operand: with `count` of these, form.x_step and form.w_step apart,
   * in a batch of one), and waits. *ns: what one took on the device, with x where the kernel wants it. Nothing else is
   * in flight. With config.direct: as enqueue computes it, on a stream of the backend's own, with tensors of
   * tensor_take; nothing else is in flight in the lane, BUSY where a thread is queueing a product of it. */
  enum status (*measure)(struct backend *backend, const struct backend_job *job, struct backend_weight *const *weights,
                         size_t count, const struct backend_timing *timing, uint64_t *ns, struct error *error);
};

/* All backends of this build, best first, NULL at the end. */
extern const struct backend_ops *const backend_table[];

/* UNSUPPORTED with the backends that do where this one does not take weights of the format. */
MUST_CHECK enum status backend_takes(const struct backend_ops *ops, enum gemm_format format, struct error *error);

/* Chooses by name: "auto", "cpu" or "cuda". `reason` receives one sentence on what was taken and why. NULL with
 * *error where none fits. */
const struct backend_ops *backend_choose(const char *name, const struct backend_config *config, char *reason,
                                         size_t reason_bytes, struct error *error);
