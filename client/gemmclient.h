/* gemmclient: products y = x * W^T by gemmd, for C and C++. This header is the manual.
 *
 * A session is a connection to gemmd with an arena: memory that both sides map, in which x, y, bias and scales
 * lie. A weight is opened by name. A product is asked for with offsets that the library computes from pointers into
 * the arena; nothing is copied on the way.
 *
 *   gemmd_session *session = NULL;
 *   if (gemmd_connect(&session, NULL, NULL) != GEMMD_OK) { puts(gemmd_error(session)); ... }
 *   gemmd_weight *weight = NULL;
 *   gemmd_weight_open(session, "mlp.up", &weight);
 *   float *x = gemmd_alloc(session, m * k * sizeof *x), *y = gemmd_alloc(session, m * n * sizeof *y);
 *   gemmd_product product = {.m = m, .x = x, .x_type = GEMMD_F32, .y = y, .y_type = GEMMD_F32};
 *   if (gemmd_matmul(weight, &product) != GEMMD_OK) puts(gemmd_error(session));
 *
 * Results: every function that can fail returns GEMMD_OK or a negative status, and leaves a sentence for
 * gemmd_error(). A failure of one call does not spoil the next, but for GEMMD_DISCONNECTED, which mostly stays.
 *
 * Threads: a session belongs to one thread at a time; sessions are independent of each other, so one session a
 * thread needs no lock. gemmd_status_name, gemmd_status_retryable and gemmd_version may be called from anywhere. After
 * a fork the session is the parent's: all that the child may do with it is gemmd_disconnect, which leaves the parent's
 * as it is. Until the child has done so, has executed another program or ended, the daemon counts it as connected.
 *
 * When the daemon's worker dies, the library submits what was in flight once more, to the successor; a caller sees
 * a pause. What cannot be served ends with GEMMD_DEVICE_LOST. When the daemon itself is killed and started again, or is
 * upgraded, the session goes on with the next one: see gemmd_options. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GEMMD_API __attribute__((visibility("default")))
#else
#define GEMMD_API
#endif

enum gemmd_status {
  GEMMD_OK = 0,
  GEMMD_INVALID = -1,   /* an argument; the sentence names field and value */
  GEMMD_NOT_FOUND = -2, /* no weight of that name */
  GEMMD_EXISTS = -3,    /* the name stands for other content */
  GEMMD_PERMISSION = -4,
  GEMMD_VERSION = -5,         /* daemon and library have no protocol version in common */
  GEMMD_PROTOCOL = -6,        /* the other side sent nonsense */
  GEMMD_TOO_LARGE = -7,       /* over a limit */
  GEMMD_BUSY = -8,            /* try again later */
  GEMMD_NOMEM = -9,           /* no room on the device, in the arena or in this process */
  GEMMD_DEVICE_LOST = -10,    /* the device failed twice under this request, or is out of order for a while */
  GEMMD_BAD_FILE = -11,       /* the weights file is malformed */
  GEMMD_BAD_DESCRIPTOR = -12, /* the descriptor is no regular file */
  GEMMD_UNSUPPORTED = -13,
  GEMMD_TIMEOUT = -14,
  GEMMD_CANCELLED = -15,
  GEMMD_SHUTTING_DOWN = -16,
  GEMMD_DISCONNECTED = -17, /* the daemon is gone, and no other was found in time */
  GEMMD_WRONG_STATE = -18,
  GEMMD_SYSTEM = -19, /* a system call failed; the sentence says which */
  GEMMD_INTERNAL = -20
};

enum gemmd_type {
  GEMMD_TYPE_NONE = 0,
  GEMMD_F32 = 1,
  GEMMD_F16 = 2,
  GEMMD_BF16 = 3,
  GEMMD_INT8 = 4,
  GEMMD_E4M3 = 5,
  GEMMD_S32 = 6
};

enum gemmd_format {
  GEMMD_FORMAT_INT8 = 1,
  GEMMD_FORMAT_FP8 = 2,
  GEMMD_FORMAT_INT2 = 3,
  GEMMD_FORMAT_F16 = 4,
  GEMMD_FORMAT_BF16 = 5,
  GEMMD_FORMAT_INT2A8 = 6, /* stored as INT2; activations are quantized to INT8, a row at a time */
  GEMMD_FORMAT_INT4 = 7,   /* this and what follows: 4 bits */
  GEMMD_FORMAT_INT4A8 = 8, /* stored as INT4; activations are quantized to INT8, a row at a time */
  GEMMD_FORMAT_MXFP4 = 9,  /* e2m1 with a power of two for each 32 elements of K */
  GEMMD_FORMAT_NVFP4 = 10  /* e2m1 with an e4m3 for each 16 elements of K and an f32 for each row */
};

/* Along K: GROUP 128 elements, GROUP64, GROUP32. INT2, INT4 and their likes have scales in f16; those of _BF16 are
 * bf16. _ZEROS: with a zero point, an integer, beside each; _ZEROS_F16: any f16. GROUP16_FACTORS: e4m3 for 16 elements,
 * and a factor a row. */
enum gemmd_scale {
  GEMMD_SCALE_DEFAULT = 0, /* what the file has; INT8 and FP8: ROW, INT2(A8) and INT4(A8): GROUP, MXFP4: GROUP32, NVFP4:
                              GROUP16_FACTORS; F16 and BF16 have none */
  GEMMD_SCALE_ONE = 1,
  GEMMD_SCALE_ROW = 2,
  GEMMD_SCALE_BLOCK = 3,
  GEMMD_SCALE_GROUP = 4,
  GEMMD_SCALE_GROUP64 = 5,
  GEMMD_SCALE_GROUP32 = 6,
  GEMMD_SCALE_ROW_BF16 = 7,
  GEMMD_SCALE_GROUP_BF16 = 8,
  GEMMD_SCALE_GROUP64_BF16 = 9,
  GEMMD_SCALE_GROUP32_BF16 = 10,
  GEMMD_SCALE_ROW_ZEROS = 11,
  GEMMD_SCALE_GROUP_ZEROS = 12,
  GEMMD_SCALE_GROUP64_ZEROS = 13,
  GEMMD_SCALE_GROUP32_ZEROS = 14,
  GEMMD_SCALE_ROW_BF16_ZEROS = 15,
  GEMMD_SCALE_GROUP_BF16_ZEROS = 16,
  GEMMD_SCALE_GROUP64_BF16_ZEROS = 17,
  GEMMD_SCALE_GROUP32_BF16_ZEROS = 18,
  GEMMD_SCALE_GROUP16_FACTORS = 19,
  GEMMD_SCALE_ROW_ZEROS_F16 = 20,
  GEMMD_SCALE_GROUP_ZEROS_F16 = 21,
  GEMMD_SCALE_GROUP64_ZEROS_F16 = 22,
  GEMMD_SCALE_GROUP32_ZEROS_F16 = 23,
  GEMMD_SCALE_ROW_BF16_ZEROS_F16 = 24,
  GEMMD_SCALE_GROUP_BF16_ZEROS_F16 = 25,
  GEMMD_SCALE_GROUP64_BF16_ZEROS_F16 = 26,
  GEMMD_SCALE_GROUP32_BF16_ZEROS_F16 = 27
};

enum gemmd_method {
  GEMMD_METHOD_DEFAULT = 0, /* as stored where the file is quantized, else ABSMAX, below 8 bits LEAST_SQUARES */
  GEMMD_METHOD_ABSMAX = 1,
  GEMMD_METHOD_LEAST_SQUARES = 2,
  GEMMD_METHOD_TERNARY = 3
};

enum gemmd_mode {
  GEMMD_MODE_DEFAULT = 0, /* of a new name: ALL where an admin loads it, else PRIVATE; else as it is */
  GEMMD_MODE_PRIVATE = 1, /* for its owner and admins */
  GEMMD_MODE_ALL = 2      /* for every user; takes an admin */
};

/* On one device; as a copy on each of several, where a product goes to the one on which its session has the fewest
 * under way; or as ranges of its rows on several, which compute each product together. */
enum gemmd_placement { GEMMD_PLACEMENT_SINGLE = 0, GEMMD_PLACEMENT_REPLICAS = 1, GEMMD_PLACEMENT_SPLIT = 2 };

typedef struct gemmd_session gemmd_session;
typedef struct gemmd_weight gemmd_weight;

/* "0.1.0": of the library. */
GEMMD_API const char *gemmd_version(void);
/* "INVALID"; "UNKNOWN" for a number that is no status. */
GEMMD_API const char *gemmd_status_name(int status);
/* True where the same call may succeed later unchanged. */
GEMMD_API bool gemmd_status_retryable(int status);

/* ---- sessions */

typedef struct gemmd_options {
  size_t arena_bytes;  /* for tensors; 0: 64 MiB. The memory is taken when it is touched */
  unsigned entries;    /* requests in flight, a power of two up to 256; 0: 64 */
  unsigned spin_us;    /* how long a wait may spin before it sleeps: twice what waits usually take is tried, 50 at
                          least, and where it is longer, next to nothing; 0: 200. UINT_MAX: never spins */
  unsigned timeout_ms; /* for the daemon's answer to control calls other than loads; 0: 10000 */
  /* How long a daemon that is lost is waited for, when it is killed or replaced: the session then goes on with the next
   * one, with the same memory and the same weights, and what was in flight is submitted again. A weight that the next
   * one has not stays open: its products are NOT_FOUND, with its name, until the same content is loaded again under
   * that name, which each of them looks for. The call that finds it
   * lost waits so long, whatever limit of its own it has, gemmd_dispatch and with it an event loop too. 0: 30000.
   * UINT_MAX: not at all, the session ends. */
  unsigned reconnect_ms;
  const char *name; /* who asks, for the daemon's log; NULL: the program's name */
} gemmd_options;

/* Connects to `address`: a path; NULL: $GEMMD_SOCKET, else /run/gemmd/gemmd.sock; "embedded:" starts a daemon of its
 * own that ends with the session ("embedded:PATH": with the configuration file PATH; the program is $GEMMD_BINARY,
 * else the gemmd beside this program or library, else the one on the PATH). `options` may be NULL. *out is set even on
 * failure, for gemmd_error, but for lack of memory; gemmd_disconnect frees it either way. */
GEMMD_API int gemmd_connect(gemmd_session **out, const char *address, const gemmd_options *options);
/* Ends the session and frees it, its weights and the arena: all pointers from gemmd_alloc are gone. NULL is fine. */
GEMMD_API void gemmd_disconnect(gemmd_session *session);
/* The sentence of the last failure in this session; "" before any. Valid until the next call. */
GEMMD_API const char *gemmd_error(const gemmd_session *session);

/* ---- memory of the arena */

/* `bytes` of shared memory, aligned to 256, contents undefined. NULL where the arena has no room. */
GEMMD_API void *gemmd_alloc(gemmd_session *session, size_t bytes);
/* Not while a product that uses it is in flight. NULL is fine. */
GEMMD_API void gemmd_free(gemmd_session *session, void *memory);

/* ---- memory of one's own, mapped by the daemon, too: x, y and W may lie there as well as in the arena. On a GPU it is
 * device memory that was made with cuMemCreate and exported with cuMemExportToShareableHandle as a POSIX descriptor;
 * for a daemon on the CPU backend it is a memfd, sealed against shrinking (F_SEAL_SHRINK). What a GPU's work writes
 * there is ordered by an event, or by waiting for it (synchronize its stream) before the product is asked for.
 * gemmclient_cuda.h makes both. */

typedef struct gemmd_memory gemmd_memory;
typedef struct gemmd_event gemmd_event;

/* `fd` is the memory's descriptor and stays the caller's, `bytes` the size of all of it, `address` where this process
 * has it (never read by the library): pointers into [address, address + bytes) may be x and y of products by this
 * device's weights, and W of products of two tensors; bias and scales stay in the arena. y is there when the result has
 * been taken. At most 32 a session, events counted. BAD_DESCRIPTOR for anything else, or memory of another device.
 * TIMEOUT as of gemmd_weight_open. */
GEMMD_API int gemmd_memory_open(gemmd_session *session, unsigned device, int fd, void *address, uint64_t bytes,
                                gemmd_memory **out);
/* The same for memory of cudaMalloc, by its legacy IPC handle (the 64 bytes of a cudaIpcMemHandle_t), of which `bytes`
 * from its beginning are used. For users whom the daemon's option ipc_users names, others are told PERMISSION: to free
 * it before it is closed here may cost everybody the device. INVALID for a handle that cannot be opened, UNSUPPORTED
 * where the daemon has no GPU. */
GEMMD_API int gemmd_memory_open_ipc(gemmd_session *session, unsigned device, const void *handle, void *address,
                                    uint64_t bytes, gemmd_memory **out);
/* BUSY, with all as it was, while a product that uses it is in flight. TIMEOUT where the daemon has not answered: it
 * may use the memory until a later call has returned OK. NULL is fine. */
GEMMD_API int gemmd_memory_close(gemmd_memory *tensor);

/* `handle`: the 64 bytes of a cudaIpcEventHandle_t, of an event made for other processes. A product with the event in
 * `after` begins when all has ended that was queued before the event was last recorded; the daemon asks the event from
 * time to time and serves others meanwhile. CUDA's events pass between processes of one user: PERMISSION where the
 * daemon runs as another. INVALID for a handle that cannot be opened, UNSUPPORTED where the daemon has no GPU. */
GEMMD_API int gemmd_event_open(gemmd_session *session, unsigned device, const void *handle, gemmd_event **out);
/* BUSY, with all as it was, while a product waits for it; TIMEOUT as above. Destroy the event itself afterwards. NULL
 * is fine. */
GEMMD_API int gemmd_event_close(gemmd_event *event);

/* ---- weights */

/* What is done to each row of x before it is multiplied, in this order, as the file of the weight wants it; a sum. x of
 * such a weight is f32, f16 or bf16. */
enum gemmd_input {
  GEMMD_INPUT_NONE = 0,
  GEMMD_INPUT_ORDER = 1,  /* its elements are put in another order */
  GEMMD_INPUT_SCALE = 2,  /* it is quantized with a scale of the file's, not of its own: what is beyond is cut off */
  GEMMD_INPUT_ROTATE = 16 /* times 1..5: groups of 4^i elements are multiplied by a Hadamard matrix, before that */
};

typedef struct gemmd_weight_info {
  char name[256];
  int64_t n, k;
  enum gemmd_format format;
  int scale;           /* enum gemmd_scale; 0: none */
  uint64_t bytes;      /* that it takes on the device */
  uint32_t references; /* names that stand for this content */
  uint32_t owner;      /* user id */
  enum gemmd_mode mode;
  uint32_t devices; /* that hold a part or a copy */
  uint8_t hash[32]; /* of the content */
  bool shared;      /* after a load: equal content was there already, nothing was stored */
  uint32_t borrows; /* of all sessions: see gemmd_weight_borrow */
  uint32_t experts; /* E: W is [E, n, k]; 0: it is [n, k] */
  uint32_t input;   /* of enum gemmd_input */
} gemmd_weight_info;

typedef struct gemmd_borrower {
  uint32_t pid, user; /* of the process that connected; user id */
} gemmd_borrower;

typedef struct gemmd_load {
  const char *name;         /* to be known by, 1..255 bytes */
  const char *tensor;       /* in the file */
  const char *scale_tensor; /* NULL: by the usual names, see deploy/WEIGHTS.md */
  enum gemmd_format format;
  enum gemmd_scale scale;
  enum gemmd_method method;
  bool replace; /* where the name stands for other content already */
  enum gemmd_placement placement;
  int device;       /* the first of several; -1: the daemon chooses */
  unsigned devices; /* of REPLICAS and SPLIT; 0: all */
  enum gemmd_mode mode;
  /* How far the load is, in bytes; NULL: not asked for. Runs inside gemmd_weight_load, where the session takes no other
   * control call. */
  void (*progress)(void *user, uint64_t done, uint64_t total);
  void *user;
  /* E: the weight has so many experts. `{}` in the tensors' names is the number of one, `expert` for the first, and
   * scale_tensor must be NULL; without it a tensor [.., N, K] of F32, F16 or BF16 has them stacked. All are of one
   * shape. 0: a weight without. */
  unsigned experts, expert;
  const char *const *more; /* tensors whose rows follow those of `tensor`, up to 7 */
  unsigned more_count;
  /* A file that has the size and the times of one that this user has loaded so before counts as what it was then: it is
   * not read where what was made of it is there. What is written to a file without a change of both goes unnoticed. */
  bool trust_size_and_time;
} gemmd_load;

/* Loads a tensor of the safetensors file behind descriptor `fd` (a regular file, open for reading; stays the
 * caller's). Blocks as long as it takes. `info` may be NULL. */
GEMMD_API int gemmd_weight_load(gemmd_session *session, int fd, const gemmd_load *load, gemmd_weight_info *info);
/* The same with the path opened here, as this process may: NOT_FOUND where there is no such file, PERMISSION. */
GEMMD_API int gemmd_weight_load_file(gemmd_session *session, const char *path, const gemmd_load *load,
                                     gemmd_weight_info *info);
/* Loads numbers that lie in memory of gemmd_memory_open or gemmd_memory_open_ipc: n dense rows of k from `data` on, a
 * multiple of 16 bytes into it, of type F32, F16 or BF16. On a GPU they are quantized there and never pass through this
 * process. They stay as they are until the call returns. Of `load` tensors and progress say nothing; what load->format
 * needs is as for a file, but on a GPU F16 and BF16 are made of their own type alone, and INT2 with scales in groups:
 * UNSUPPORTED. INVALID for a matrix that is not in such memory; BAD_FILE for values that are not finite. DEVICE_LOST
 * where the worker that has the memory died: call again. */
GEMMD_API int gemmd_weight_take(gemmd_session *session, const gemmd_load *load, const void *data, enum gemmd_type type,
                                int64_t n, int64_t k, gemmd_weight_info *info);
/* Drops the name. The memory is freed with the last name and the last open handle. *freed may be NULL. */
GEMMD_API int gemmd_weight_unload(gemmd_session *session, const char *name, uint64_t *freed);
GEMMD_API int gemmd_weight_stat(gemmd_session *session, const char *name, gemmd_weight_info *info);
/* Who has borrowed it: up to `most` sessions, of up to 16 that the daemon names, and in *count how many there are here.
 * `info`, as of gemmd_weight_stat, may be NULL. */
GEMMD_API int gemmd_weight_borrowers(gemmd_session *session, const char *name, gemmd_borrower *borrowers, unsigned most,
                                     unsigned *count, gemmd_weight_info *info);
/* Calls `each` for all weights that match the fnmatch(3) pattern (NULL: all), by name, until it returns false. */
GEMMD_API int gemmd_weight_list(gemmd_session *session, const char *pattern,
                                bool (*each)(void *user, const gemmd_weight_info *info), void *user);

/* ---- whole models: folders and files of safetensors or GGUF, in the layouts of MODELS.md */

/* What becomes of weights whose name in the model matches the fnmatch(3) pattern. Of several rules the first counts. */
typedef struct gemmd_model_rule {
  const char *pattern;
  enum gemmd_format format; /* 0: as the model has it: codes as they are, f16 and bf16 too */
  enum gemmd_scale scale;
  enum gemmd_method method;
} gemmd_model_rule;

typedef struct gemmd_model_progress {
  unsigned weights, weights_done;
  uint64_t bytes, bytes_done; /* of the files */
} gemmd_model_progress;

typedef struct gemmd_model {
  /* One folder (with model.safetensors.index.json, or one file, or one .gguf), or files. The model's configuration is
   * looked for in the folder of the first. */
  const char *const *paths;
  unsigned path_count;
  const char *const *patterns; /* fnmatch(3), of names in the model: what is loaded; none: all matrices */
  unsigned pattern_count;
  const char *const *excludes; /* and what is not */
  unsigned exclude_count;
  const gemmd_model_rule *rules;
  unsigned rule_count;
  /* "q_proj,k_proj,v_proj=qkv_proj": weights of these names behind the same prefix become one, rows behind rows. */
  const char *const *fuses;
  unsigned fuse_count;
  /* Of every weight the part of rank `rank` of `ranks` (0: all of it): equal ranges of its rows, or of its columns for
   * names that match one of `columns`; with no `columns`, *.o_proj.weight and *.down_proj.weight. A fused weight is
   * made of parts of each. */
  unsigned rank, ranks;
  const char *const *columns;
  unsigned column_count;
  const char *prefix; /* before the names in the model; NULL: "" */
  /* Names that stand for other content are given to the model's; with a prefix, which must end with one of ./:-_ then,
   * names behind it that the model does not have go. Who has weights open keeps them. */
  bool replace;
  bool keep_going; /* what cannot be loaded is left out; else nothing is loaded then */
  enum gemmd_placement placement;
  int device;
  unsigned devices;
  enum gemmd_mode mode;
  /* NULL: not asked for. They run inside gemmd_model_load, where the session takes no other control call. */
  void (*progress)(void *user, const gemmd_model_progress *progress);
  void (*loaded)(void *user, const gemmd_weight_info *info); /* has no name before all have */
  void (*failed)(void *user, const char *name, int status, const char *sentence);
  void *user;
  bool trust_size_and_time; /* as in gemmd_load */
  /* Weights whose names differ in the number behind "experts." alone, after they were fused, become one with experts,
   * named without it. With `split_experts` a rank takes an equal number of them, whole, in place of a part of each. */
  bool join_experts, split_experts;
} gemmd_model;

typedef struct gemmd_model_result {
  unsigned weights, shared, failed; /* loaded; of these, with content that was there; not loaded */
  unsigned dropped;                 /* names that went, of `replace` */
  uint64_t bytes;                   /* on devices */
} gemmd_model_result;

/* Loads the weights of a model, several at a time. Their names come to be together at the end; where something fails,
 * or this process ends, gemmd has nothing of it. The files are opened here, as this process may. BAD_FILE for files
 * that are no model or change meanwhile, NOT_FOUND for a pattern without a match, EXISTS for names that clash.
 * `result` may be NULL. */
GEMMD_API int gemmd_model_load(gemmd_session *session, const gemmd_model *model, gemmd_model_result *result);

/* What gemmd holds of a weight, in memory of this process: rows of codes, row_bytes from one to the next (INT8, e4m3,
 * f16 and bf16 as they are; 2 bits four a byte, the first in the lowest bits, code c for c - 1; 4 bits two a byte, code
 * c for c - 8, for c less the zero point, or e2m1), then scales,
 * row-major: f32, of weights below 8 bits f16, or as their mode says, of MXFP4 e8m0, of NVFP4 e4m3. `zeros` are zero
 * points, a byte or an f16 beside each scale, `factors` of NVFP4 an f32 for each row, by which its scales are to be
 * multiplied; else they are NULL. With GEMMD_INPUT_SCALE the scale of x, with GEMMD_INPUT_ORDER which element of x goes
 * with each of K; else these are NULL. */
typedef struct gemmd_content {
  int64_t n, k;
  enum gemmd_format format;
  int scale; /* enum gemmd_scale; 0: none */
  const void *codes, *scales;
  uint64_t row_bytes, scale_rows, scale_columns;
  uint32_t input; /* of enum gemmd_input */
  const float *x_scale;
  const uint32_t *order; /* [k] */
  void *map;             /* the library's */
  uint64_t bytes;
  uint32_t experts; /* E: codes and scales are those of each, one behind the other; 0: none */
  const void *zeros;
  const float *factors;
} gemmd_content;

/* For admins. Fills *out, which gemmd_content_free gives back. UNSUPPORTED for a weight that is split over
 * devices. */
GEMMD_API int gemmd_weight_fetch(gemmd_session *session, const char *name, gemmd_content *out);
GEMMD_API void gemmd_content_free(gemmd_content *content);

/* Opens a weight for products. It belongs to the session. The content stays while it is open, also when its name is
 * unloaded or replaced. After TIMEOUT what the daemon opens late is closed by the call that takes its answer in. */
GEMMD_API int gemmd_weight_open(gemmd_session *session, const char *name, gemmd_weight **out);
/* Not while a product that uses it is in flight. NULL is fine. */
GEMMD_API void gemmd_weight_close(gemmd_weight *weight);
/* Valid until the weight is closed. */
GEMMD_API const gemmd_weight_info *gemmd_weight_get_info(const gemmd_weight *weight);

/* ---- the memory of weights, for processes that compute with it themselves. gemmclient_direct.h does all of this and
 * the products, too; here is what it is made of. The daemon lends to the user that it runs as, and to the group of its
 * option direct. */

typedef struct gemmd_borrowed gemmd_borrowed;

/* A copy of the weight, or a range of its rows, on one device. */
typedef struct gemmd_borrowed_part {
  unsigned device;          /* the daemon's number */
  uint8_t device_uuid[16];  /* of the GPU, as cuDeviceGetUuid tells it; zeros on the CPU backend */
  int64_t n_begin, n_count; /* rows of W */
  int fd;                   /* of the slab, the session's: a GPU's exported allocation, or a memfd open for reading */
  uint32_t slab;            /* parts and weights of one session with the same number have the same fd */
  uint64_t slab_bytes;      /* to be mapped, all of it, for reading */
  uint64_t offset, bytes;   /* of the part in the slab */
  uint32_t layout;          /* how the backend keeps it */
  uint64_t checksum;        /* of these bytes, by the backend's own rule; 0: none is known */
} gemmd_borrowed_part;

enum gemmd_borrowed_state {
  GEMMD_BORROWED_SHARED = 0,   /* the daemon has the same memory */
  GEMMD_BORROWED_ALONE = 1,    /* the daemon was started anew without it: what is mapped stays, and nobody shares it */
  GEMMD_BORROWED_WITHDRAWN = 2 /* its bytes are not those that were loaded: results of it are not to be trusted */
};

/* The bytes of what is mapped never change, whatever becomes of the name, of the session or of the daemon; they go with
 * the last who maps them. The first time a weight that lies among others' is copied by the daemon: NOMEM where there is
 * no room. PERMISSION, BUSY where one of the two processes has no descriptor left, UNSUPPORTED for a daemon that lends
 * nothing. It belongs to the session. */
GEMMD_API int gemmd_weight_borrow(gemmd_session *session, const char *name, gemmd_borrowed **out);
/* Unmap its parts before, or see to it that whatever reads there ends first: without another weight in the same slab
 * the session closes the descriptor, which takes nothing from who has it mapped. NULL is fine. */
GEMMD_API void gemmd_weight_return(gemmd_borrowed *borrowed);
/* Both valid until it is returned. */
GEMMD_API const gemmd_weight_info *gemmd_borrowed_info(const gemmd_borrowed *borrowed);
GEMMD_API const gemmd_borrowed_part *gemmd_borrowed_parts(const gemmd_borrowed *borrowed, unsigned *count);
/* As last heard of: by any call that takes in what the daemon says, as gemmd_dispatch. */
GEMMD_API enum gemmd_borrowed_state gemmd_borrowed_look(const gemmd_borrowed *borrowed);
/* What entries of the ring of gemmd_shapes_open call it; another one once the session has gone on with another daemon,
 * and 0 where that counts none. */
GEMMD_API uint32_t gemmd_borrowed_number(const gemmd_borrowed *borrowed);
/* Which kernels the daemon found for this device: a memfd of *bytes, open for reading, the caller's; the daemon goes on
 * to write it. The protocol says what it holds. */
GEMMD_API int gemmd_tunings_open(gemmd_session *session, unsigned device, int *fd, uint64_t *bytes);
/* A ring by which this process tells the daemon what it computes for the first time, so that it is tuned for: a memfd
 * of *bytes, open for writing, the caller's. PERMISSION as of gemmd_weight_borrow. */
GEMMD_API int gemmd_shapes_open(gemmd_session *session, int *fd, uint64_t *bytes);
/* A kernel that this process has found for products by a borrowed weight. */
typedef struct gemmd_proposal {
  int64_t m; /* of a bucket of rows: its largest */
  enum gemmd_type x_type, y_type, bias_type;
  const char *kernel; /* as gemmctl names it */
} gemmd_proposal;
/* Tells the daemon, which tries it when the device is quiet: what no test has seen in a process of its own, then
 * against other kernels, and tells all others if it wins. OK: it is noted. PERMISSION as of gemmd_weight_borrow;
 * NOT_FOUND where the daemon does not know that it is borrowed; UNSUPPORTED: one that takes no proposals. */
GEMMD_API int gemmd_tune_propose(gemmd_session *session, const gemmd_borrowed *borrowed,
                                 const gemmd_proposal *proposal);
/* How often this session has gone on with another daemon: table and ring are then others, to be opened again. */
GEMMD_API uint32_t gemmd_resumes(const gemmd_session *session);

/* ---- products */

/* y [m, n] = x [m, k] * W^T (+ bias [n]); row-major, all in the session's arena, aligned to 16 bytes. y overlaps
 * neither x nor bias. What a weight takes:
 *   INT8       x f32, f16, bf16 (quantized a row on the way) or int8; y f32, f16, bf16, or s32 where x is int8
 *   FP8        x f32, f16, bf16 (quantized a row, or a 1x128 block) or e4m3; y f32, f16, bf16
 *   INT2       x f32, f16, bf16; y f32, f16, bf16
 *   F16, BF16  x of the same type; y f32, f16, bf16 */
enum gemmd_priority { GEMMD_PRIORITY_NORMAL = 0, GEMMD_PRIORITY_URGENT = 1, GEMMD_PRIORITY_BACKGROUND = 2 };

typedef struct gemmd_product {
  uint32_t m;
  const void *x;
  enum gemmd_type x_type;
  void *y;
  enum gemmd_type y_type;
  const void *bias; /* NULL: none */
  enum gemmd_type bias_type;
  const float *x_scale;      /* for x of type int8 or e4m3: [m], or [m, ceil(k/128)] for block scales */
  size_t x_stride, y_stride; /* bytes from row to row; 0: dense */
  /* Urgent ones go first, background ones last; one start in sixteen is the other way round, so that none starves.
   * Within a class users share the device by its time. */
  enum gemmd_priority priority;
  unsigned deadline_us; /* from now; if it has not begun by then, it ends with GEMMD_TIMEOUT, also on its way where the
                           CPU computes it a turn at a time; 0: none */
  /* Recorded before the call; NULL: none. The product begins when the event has come. Where that takes longer than the
   * deadline, or the daemon's event_timeout_ms (1 s), it ends with GEMMD_TIMEOUT. */
  const gemmd_event *after;
} gemmd_product;

typedef struct gemmd_result {
  uint64_t ticket;
  int status;         /* of the product */
  uint64_t device_ns; /* the backend's own time of the product */
  uint64_t queue_ns;  /* waited inside the daemon before that */
  uint32_t skipped;   /* of a product over experts: pairs whose id is no expert; saturates */
} gemmd_result;

/* Computes one product and waits for it. */
GEMMD_API int gemmd_matmul(gemmd_weight *weight, const gemmd_product *product);

/* Asks for a product and returns at once; *ticket names it (never 0). The tensors belong to the daemon until the
 * result has been taken. GEMMD_BUSY where `entries` are in flight: take results first. */
GEMMD_API int gemmd_submit(gemmd_weight *weight, const gemmd_product *product, uint64_t *ticket);

/* W [n, k] as a tensor, of x's type, which is f16 or bf16: for products of two activations, as in the gradients of
 * weights. In the arena it is copied to the device with every product; in device memory it is read where it lies.
 *
 * What follows `device` may be zeros. `turned`: W is [k, n]; `x_turned`: x is [k, m]; strides are then those of these
 * rows. `add`: the product is added to what y holds, in f32 before it is rounded; such a product is not computed again
 * where its worker is lost on the way: it ends with GEMMD_DEVICE_LOST, and what y holds is not known. `batch`: so many
 * products, 1 to 65535, of tensors that lie `batch_stride`, `x_batch_stride` and `y_batch_stride` bytes apart (0: one
 * follows the other), without a bias where there are several. */
typedef struct gemmd_tensor {
  const void *data;
  uint32_t n, k;
  size_t stride;   /* bytes from row to row; 0: dense */
  uint32_t device; /* that computes */
  int turned, x_turned, add;
  uint32_t batch; /* 0: 1 */
  size_t batch_stride, x_batch_stride, y_batch_stride;
} gemmd_tensor;

/* As gemmd_matmul and gemmd_submit, with such a W; y overlaps it neither. */
GEMMD_API int gemmd_tensors_matmul(gemmd_session *session, const gemmd_tensor *w, const gemmd_product *product);
GEMMD_API int gemmd_tensors_submit(gemmd_session *session, const gemmd_tensor *w, const gemmd_product *product,
                                   uint64_t *ticket);
/* Asks that a product be dropped. If it has not begun, its result will be GEMMD_CANCELLED, else what it would have been
 * anyway; on the CPU one that takes long can be dropped on its way. It has to be taken
 * either way, and until then the tensors are the daemon's. GEMMD_BUSY where the ring has no room for the asking. */
GEMMD_API int gemmd_cancel(gemmd_session *session, uint64_t ticket);
/* Waits for one product, `timeout_ms` at most (-1: no limit, 0: only looks). Returns the product's status, or
 * GEMMD_TIMEOUT with the product still in flight. `result` may be NULL. A ticket can be taken once. */
GEMMD_API int gemmd_wait(gemmd_session *session, uint64_t ticket, int timeout_ms, gemmd_result *result);
/* Takes any finished product. GEMMD_OK with *result filled (its own status inside), GEMMD_TIMEOUT where none is
 * finished, GEMMD_NOT_FOUND where none is in flight. */
GEMMD_API int gemmd_wait_any(gemmd_session *session, int timeout_ms, gemmd_result *result);
/* The same until a time of CLOCK_MONOTONIC in nanoseconds, for who has something to do then; one that has passed: only
 * looks. */
GEMMD_API int gemmd_wait_any_until(gemmd_session *session, uint64_t deadline_ns, gemmd_result *result);

/* ---- plans: sequences of products in which the result of one is x of the next, computed by one submission. What lies
 * between the products never leaves the device. */

enum gemmd_activation {
  GEMMD_ACTIVATION_NONE = 0,
  GEMMD_RELU = 1, /* max(v, 0) */
  GEMMD_GELU = 2, /* v * erfc(-v / sqrt(2)) / 2 */
  GEMMD_SILU = 3, /* v / (1 + exp(-v)) */
  /* Gated alone, gpt-oss': g / (1 + exp(-1.702 g)) * (u + 1), where g is min(gate, 7), u is up within -7 and 7 */
  GEMMD_SWIGLU_CLAMPED = 4
};

/* v = x * W^T + bias, rounded to y_type as a product's y is. Then, computed in f32 and rounded to y_type again:
 *   not gated  x' = act(v), [m, n]
 *   gated      x' = act(gate) * up, [m, n / 2]: the first half of a row of v is the gate, the second is up. W is the
 *              fused [2F, K] weight of a gated layer, the gate's rows first; with GEMMD_SILU this is SwiGLU.
 * x' is x of the next step, which quantizes it as its weight's format does to any x; that of the last step is y. */
typedef struct gemmd_step {
  gemmd_weight *weight;
  enum gemmd_type y_type; /* F32, F16 or BF16; one that the next step's weight takes as x */
  const void *bias;       /* [n], in the arena, where it must stay; read whenever the plan runs. NULL: none */
  enum gemmd_type bias_type;
  enum gemmd_activation activation;
  bool gated;
} gemmd_step;

typedef struct gemmd_plan gemmd_plan;

/* A plan of 1..16 steps, for any number of rows. All its weights must be whole on one device (on several, where they
 * are replicas: the one with the least to do computes). It belongs to the session, takes some bytes of the arena, and
 * keeps its weights in use only while they are open: with one of them closed, its results are GEMMD_NOT_FOUND. INVALID
 * and UNSUPPORTED name step and field, NOMEM: the arena is full. */
GEMMD_API int gemmd_plan_create(gemmd_session *session, const gemmd_step *steps, unsigned count, gemmd_plan **out);
/* Not while a submission of it is in flight. NULL is fine. */
GEMMD_API void gemmd_plan_free(gemmd_plan *plan);
/* As gemmd_matmul and gemmd_submit: x is [m, k] of the first step, y is what the last one gives, of its y_type; `bias`
 * must be NULL. Rows of several processes that submit equal plans without bias are computed together. */
GEMMD_API int gemmd_plan_run(gemmd_plan *plan, const gemmd_product *product);
GEMMD_API int gemmd_plan_submit(gemmd_plan *plan, const gemmd_product *product, uint64_t *ticket);

/* ---- experts: weights [E, n, k], of which a row of x takes those that it names by ids. Row i of x goes to T of them,
 * which makes T pairs; pair (i, t) is row i of x times expert ids[i * T + t]. */
typedef struct gemmd_experts {
  const int32_t *ids;   /* [m, T], where x lies: in the arena, or in the same memory of one's own. An id that is no
                           expert, as -1 is, skips: its pair is zeros, and adds nothing to a sum */
  const float *routing; /* [m, T], there, too: weights of the sum; NULL: 1, and without a sum it must be NULL */
  uint32_t top;         /* T, 1..E */
  bool x_pairs;         /* x is [m * T, k], a row for each pair; else [m, k] */
  bool sum;             /* y is [m, n], over t in order in f32 the routing times the pair's product, which is rounded to
                           y_type before; else y is [m * T, n] */
} gemmd_experts;

/* As gemmd_matmul and gemmd_submit: x is f32, f16 or bf16, bias is [E, n]. `result`, with what was skipped, may be
 * NULL. Same bits for the same request. */
GEMMD_API int gemmd_experts_matmul(gemmd_weight *weight, const gemmd_product *product, const gemmd_experts *experts,
                                   gemmd_result *result);
GEMMD_API int gemmd_experts_submit(gemmd_weight *weight, const gemmd_product *product, const gemmd_experts *experts,
                                   uint64_t *ticket);
/* A plan over experts is a layer: gate and up [E, 2F, k] gated, down [E, n, F], their sum. Its weights have as many
 * experts each; what lies between its steps is pairs; y is of the last one as above. */
GEMMD_API int gemmd_experts_plan_run(gemmd_plan *plan, const gemmd_product *product, const gemmd_experts *experts,
                                     gemmd_result *result);
GEMMD_API int gemmd_experts_plan_submit(gemmd_plan *plan, const gemmd_product *product, const gemmd_experts *experts,
                                        uint64_t *ticket);

/* ---- event loops */

/* A descriptor that polls readable when gemmd_dispatch has something to do. Owned by the session. */
GEMMD_API int gemmd_fd(const gemmd_session *session);
/* Takes in what has arrived, waiting up to `timeout_ms` for something (-1: no limit, 0: not at all) where that is
 * nothing; afterwards gemmd_wait_any(session, 0, ...) yields what has finished, and gemmd_fd is armed again. Returns
 * GEMMD_OK also where nothing came. Something is also the late answer to a call that was given up. */
GEMMD_API int gemmd_dispatch(gemmd_session *session, int timeout_ms);

/* ---- the tuner: which kernel computes what. A shape is "int8-row-4096x4096-f16-f16-none-m64" (format, scale mode,
 * NxK, types of x, y and bias, the most rows of its bucket), a kernel "cpu threads=2 block_m=16" (family, parameters).
 */

typedef struct gemmd_tune_shape {
  char shape[128], kernel[256]; /* kernel "none": the backend's own choice */
  char state[16];               /* "seen", "kept" (found earlier, not checked yet), "tuned", "failed", "pinned" */
  char why[128];                /* failed: the reason */
  bool serves;                  /* the kernel computes products; else the backend's own choice does */
  bool confirmed;               /* its times were measured on this machine */
  bool tuning;                  /* being worked on */
  uint64_t calls, device_ns;    /* products so far, and their time */
  uint64_t own_ns, tuned_ns, library_ns; /* one product by the backend's own choice, by the kernel, by the fastest
                                            kernel of a library; 0: not measured */
  uint64_t roof_ns;                      /* where the device's memory or arithmetic delivers all it can; 0: not known */
} gemmd_tune_shape;

/* Calls `each` for every shape that the device has served, or remembers, until it returns false. */
GEMMD_API int gemmd_tune_list(gemmd_session *session, uint32_t device,
                              bool (*each)(void *user, const gemmd_tune_shape *shape), void *user);

typedef struct gemmd_tune_request {
  const char *weight; /* name */
  uint32_t m;
  enum gemmd_type x_type, y_type, bias_type; /* bias_type GEMMD_TYPE_NONE: no bias */
  bool exhaustive;                           /* the whole product of parameters */
  const char *kernel;                        /* one more candidate; NULL: none. Family "any": the first that fits */
} gemmd_tune_request;

typedef struct gemmd_tune_result {
  char kernel[256];
  uint64_t ns;   /* median of one product, with x where and as the kernel wants it */
  double spread; /* half the distance of the quartiles over the median */
  uint32_t samples;
  bool own;  /* the backend's own choice */
  bool hand; /* the request's `kernel` */
} gemmd_tune_result;

typedef struct gemmd_tune_report {
  char shape[128], kernel[256];   /* what serves from here on */
  gemmd_tune_result results[8];   /* fastest first; the backend's own choice is among them */
  uint32_t count;                 /* of results */
  uint32_t checked, wrong, timed; /* candidates */
  uint64_t spent_ns;
  uint64_t roof_ns;                      /* where the device's memory or arithmetic delivers all it can; 0: not known */
  char why[128];                         /* why the request's `kernel` cannot serve; "": it can, or there was none */
  uint64_t library_first_ns, library_ns; /* by the kernel that a library names first, and by its fastest; 0: none */
} gemmd_tune_report;

/* Finds the fastest kernel for one shape now. Blocks as long as it takes; requests go first. Exhaustively, and for a
 * weight that another user has loaded, for admins; else a user may have one search under way at a time. */
GEMMD_API int gemmd_tune(gemmd_session *session, const gemmd_tune_request *request, gemmd_tune_report *report);

/* A search, and the table of all that it has tried, which the device keeps until the next search begins there. */
typedef struct gemmd_tune_search {
  uint32_t warmup;     /* products of each candidate that are not timed; at most 100 */
  uint32_t iterations; /* samples of each at least, at most 100; 0: as few as decide */
  uint32_t device;
  uint64_t number;  /* 0: the last one of the device */
  char shape[128];  /* gemmd_tune_trials */
  uint64_t roof_ns; /* where the device's memory or arithmetic delivers all it can; 0: not known */
  uint32_t total;   /* rows of the table */
} gemmd_tune_search;

typedef struct gemmd_tune_trial {
  char kernel[256];
  char state[16]; /* "timed", "untried" (the search ended without it), "refused" for this shape, "failed", "wrong" */
  char why[128];  /* it has no time */
  uint64_t ns;    /* median of one product; 0: not timed */
  double spread;  /* half the distance of the quartiles over the median */
  uint32_t samples;
  double error;       /* of the worst row of y against the plain kernel, in the 2-norm; below 0: not compared */
  uint64_t workspace; /* bytes of the device beside the tensors */
  uint32_t filling;   /* slices of K with which its blocks fill the device once; 0: not known */
  bool own;           /* the backend's own choice */
  bool incumbent;     /* what served when the search began */
  bool winner, library_first, hand;
} gemmd_tune_trial;

/* As gemmd_tune, with warmup and iterations of *search; then device and number say which search it was. */
GEMMD_API int gemmd_tune_measured(gemmd_session *session, const gemmd_tune_request *request, gemmd_tune_search *search,
                                  gemmd_tune_report *report);
/* Calls `each` for every candidate of a search by its device and number, fastest first, those without a time last,
 * until it returns false; fills the rest of *search before. NOT_FOUND where another search has begun since, BUSY while
 * it is under way. */
GEMMD_API int gemmd_tune_trials(gemmd_session *session, gemmd_tune_search *search,
                                bool (*each)(void *user, const gemmd_tune_trial *trial), void *user);
/* Forgets what was found for shapes that match the fnmatch(3) pattern, on disk, too. *count may be NULL. */
GEMMD_API int gemmd_tune_forget(gemmd_session *session, uint32_t device, const char *pattern, uint32_t *count);
/* Makes known what was found on another machine of the same kind. It serves once it has been checked. */
GEMMD_API int gemmd_tune_import(gemmd_session *session, uint32_t device, const char *shape, const char *kernel);
/* Sets a kernel for all weights, present and future, whose name matches the fnmatch(3) pattern; NULL: takes it off. It
 * serves once it has been checked. *weights, how many there are now, may be NULL. */
GEMMD_API int gemmd_tune_pin(gemmd_session *session, const char *pattern, const char *kernel, uint32_t *weights);

/* ---- the daemon */

typedef struct gemmd_device_info {
  char name[128];
  char state[16]; /* "starting", "ready", "asleep" until it is asked for something, "failed" */
  uint32_t pid, restarts;
  uint64_t memory_total, memory_slabs, memory_used;
  uint64_t memory_copies;  /* beside the slabs: weights in an order that a library wants */
  uint64_t memory_working; /* beside the slabs: what products under way need */
  uint64_t memory_lent;    /* of the slabs: whose descriptors clients were given */
  uint64_t requests, rows, failures, device_ns;
  uint64_t products;   /* that the device computed, each for one request or several */
  uint64_t memory_own; /* beside the slabs: of gemmd's process there; 0: there is none, or nobody says */
} gemmd_device_info;

typedef struct gemmd_daemon_info {
  char server[64], backend[16], backend_reason[256];
  uint32_t pid, sessions, names, weights, devices;
  uint64_t uptime_ms, weight_bytes, arena_bytes;
  gemmd_device_info device[64];
} gemmd_daemon_info;

/* Why a device does not serve, since when, and what it keeps others waiting for. */
typedef struct gemmd_device_health {
  char state[16];      /* as in gemmd_device_info */
  char why[160];       /* what ended its last worker; "" where none has ended */
  uint64_t down_ms;    /* for how long it has not served; 0: it serves */
  uint64_t retry_ms;   /* "failed": until gemmd starts its worker again; 0: that is under way */
  uint64_t longest_ns; /* for which a product has kept it from others at a time, as predicted; 0: not known */
} gemmd_device_health;

/* What a device does while nobody asks it for anything. */
typedef struct gemmd_device_rest {
  uint32_t naps;     /* how often its worker was closed for having nothing to do */
  uint32_t untuned;  /* shapes that direct clients compute and that wait to be tuned */
  uint64_t quiet_ms; /* since when no direct client was seen to use it */
  char quiet[96];    /* "quiet", or why it is not; "": there are no direct clients */
  uint64_t verified; /* comparisons of lent weights with what was loaded, while it was quiet */
  uint64_t damaged;  /* of these, weights that were damaged and are withdrawn */
} gemmd_device_rest;

/* A round trip to the supervisor; *ns may be NULL. */
GEMMD_API int gemmd_ping(gemmd_session *session, uint64_t *ns);
GEMMD_API int gemmd_daemon_status(gemmd_session *session, gemmd_daemon_info *out);
/* INVALID: there is no such device. */
GEMMD_API int gemmd_device_state(gemmd_session *session, uint32_t device, gemmd_device_health *out);
GEMMD_API int gemmd_device_resting(gemmd_session *session, uint32_t device, gemmd_device_rest *out);
/* Of weights that its backend has kernels for: bits 1 << enum gemmd_format. Others are refused when they are loaded. */
GEMMD_API int gemmd_device_formats(gemmd_session *session, uint32_t device, uint32_t *formats);
/* These three by one request; each may be NULL. */
GEMMD_API int gemmd_device_condition(gemmd_session *session, uint32_t device, gemmd_device_health *health,
                                     gemmd_device_rest *rest, uint32_t *formats);
/* For admins: the worker of a device that has failed is started now, not after the next pause; of all of them where
 * `device` is -1. *tried: how many devices waited for that; may be NULL. */
GEMMD_API int gemmd_device_retry(gemmd_session *session, int device, uint32_t *tried);
/* Numbers of the daemon and its devices in Prometheus' text format: a terminated string, to be freed by free(). */
GEMMD_API int gemmd_metrics(gemmd_session *session, char **text);
/* For admins: the daemon takes no new sessions and loads from here on, and ends with the last session that has not
 * called this. */
GEMMD_API int gemmd_drain(gemmd_session *session);

#ifdef __cplusplus
}
#endif
