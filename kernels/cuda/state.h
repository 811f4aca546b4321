/* What the parts of the cuda backend share. */
#pragma once

#include "../backend.h"
#include "exec/turns/turn.h"
#include "families/cublaslt/library.h"
#include "families/cublaslt/warm.h"
#include "families/sm90/int2_few/config.h"
#include "families/sm90/int2a8/config.h"
#include "families/sm90/int4_few/config.h"
#include "families/tile/tile.h"
#include "launch/launches.h"
#include "passes/quantize.h"
#include "runtime/cublaslt.h"
#include "runtime/driver.h"
#include "runtime/memory.h"
#include "weight/lanes.h"
#include "weight/layout.h"

#include <cuda_runtime_api.h>

enum { SLOTS_MAX = 64 };
#define OPERAND_ADDRESSES ((uint64_t)4 << 30) /* set apart for W that comes with its product */

struct backend_weight {
  struct gemm_weight weight;
  struct layout layout;
  const uint8_t *codes;
  const uint8_t *scales;
  const float *factors;                    /* of rows of W, for their scales; NULL: there are none */
  struct quantize_input input;             /* what is done to x before codes are made of it */
  uint64_t serial;                         /* from 1; no other weight of the process has or has had it */
  _Atomic uint32_t graphs;                 /* of others, that have recorded a product by it */
  int64_t rows_most;                       /* of a product that staging holds at a time */
  bool large_scales;                       /* LAYOUT_TILES2, LAYOUT_TILES4: as int2/scales.h and int4/scales.h say */
  struct int2_few_way few[INT2_FEW_WAYS];  /* LAYOUT_TILES2 */
  struct int2a8_way int2a8[INT2A8_WAYS];   /* LAYOUT_TILES2A8 */
  struct int4_few_way few4[INT4_FEW_WAYS]; /* LAYOUT_TILES4 */
};

/* A place for one product under way; of a direct backend, a lane: its memory, and what it needs to choose kernels. Only
 * the engine thread touches it, but for `staging`, which others grow, `bounce`, which cuda_arena_register sets before
 * an arena that needs it exists, and `int2_sums`, which cuda_weight_attach sets before a weight that needs it exists.
 */
struct slot {
  cudaStream_t stream;      /* but for kernels of ours: graph_stream */
  struct launches launches; /* of the stream */
  uint32_t *word;           /* pinned; the stream writes `sequence` there behind what was queued last */
  CUdeviceptr word_device;
  uint32_t sequence;
  struct region workspace; /* cuBLASLt's */
  void *int2_sums; /* on the device, what int2_many/launch.h wants; from the first INT2 or INT2A8 weight in tiles on */
  struct region staging;
  struct region operand; /* W of a job that brings its own and takes no turns, and what else is staged for it */
  void *bounce;          /* pinned, BOUNCE_BYTES; NULL while every arena could be registered */

  struct selector *selector; /* of a lane, whose thread need not be another's */
  struct memo *memo;         /* of a lane */
  cudaStream_t checked;      /* the last stream of a lane that was found to be of its context */
  bool has_checked;
  _Atomic bool entered; /* a thread is queueing a product of the lane */

  struct region *tensors; /* of a job of exec/tensors.h: what its pieces use, which its rows count then; else NULL */
  bool busy;
  struct backend_job job;      /* the first of its chain */
  struct backend_weight own;   /* what the job's weight points to where the job brings W itself */
  CUdeviceptr scratch;         /* with `own`: where what is staged begins */
  struct backend_turns *turns; /* whose piece this is; NULL: all of a job */
  int64_t first_row;           /* where the piece begins; 0 */
  int64_t rows;                /* of the chain; of a piece, the row behind it */
  int64_t rows_most;           /* of these that go at a time */
  int64_t next_row;            /* rows before it have been queued */
  enum status status;
  uint64_t begin_ns;
  uint64_t looked_ns; /* when the stream was asked for faults, or began */
};

enum { BOUNCE_BYTES = 4 << 20, WORD_BYTES = 64 };

/* What the threads other than the engine's work with; one of them at a time. */
struct side {
  cudaStream_t stream;
  uint64_t *answer; /* on the device, of what is asked of it */
  uint64_t *heard;  /* pinned: where the answer comes to */
};

struct backend_slab {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  uint64_t bytes;
  bool read_only; /* `address` is; a store maps the slab once more */
};

/* The host's memory is registered in pieces of so many bytes; one copy stays within a piece. */
#define ARENA_PIECE ((uint64_t)32 << 20)

struct backend_arena {
  uint8_t *base;
  uint64_t bytes;  /* of the host's memory; 0: it is none */
  uint8_t *device; /* the same memory as the device sees it; NULL: not registered, copied through `bounce` */
  /* Memory of another process, where base and device are one; else 0. */
  CUmemGenericAllocationHandle handle; /* of memory_import */
  uint64_t imported_bytes;
  bool ipc; /* of memory_open_ipc */
};

struct selector;
struct memo;

/* Of exec/measure/measured.h. */
enum { MEASURED_MOST = 16 };
struct measured {
  struct variant_problem problem;
  uint64_t clock;
  _Atomic uint32_t graphs;
  struct measured_one {
    struct variant variant;
    uint32_t launches;
    bool quantize, dependent;
    cudaGraphExec_t graph; /* owned; NULL: none */
    uint64_t used_at;
  } each[MEASURED_MOST];
};

/* Of exec/measure/cold.h. */
struct cold {
  struct region region;
  uint64_t serial; /* of the weight that was copied, or need not be; 0: none */
  size_t count;    /* that were measured with it */
  uint32_t copies, turn;
  bool stays; /* its memory is not given back */
};

struct backend {
  const struct driver *driver;
  CUdevice device;
  int runtime_ordinal;
  struct kernel_device gpu;
  char device_name[128];
  int devices;
  uint64_t memory_total, granularity, bytes_per_s, operations_per_s;
  struct library library;
  struct library catalog; /* the same once more, which another thread asks for what it has */
  struct library_warmer warmer;
  struct selector *selector; /* the engine thread's */
  struct tile_table tiles;
  _Atomic uint64_t sums_bytes; /* of all slots' int2_sums */
  uint64_t staging_most;       /* bytes of one slot that attaching a weight may ask for beyond its least */
  struct side side;
  struct lanes lanes;             /* of the thread that loads weights */
  uint64_t ended_ns;              /* when a product was last seen to have ended */
  void (*warn)(const char *text); /* backend_config's; NULL: nobody listens */
  bool no_graphs;                 /* one could not be made */
  void *words;                    /* pinned; WORD_BYTES for each slot */
  bool direct;                    /* for enqueue alone */
  int64_t rows_most, pairs_most;  /* of its jobs */
  CUcontext context;              /* direct: the device's primary one, retained */
  _Atomic uint32_t graphs;        /* of others, that have recorded its products */
  int in_flight;                  /* products, and pieces of long ones, that are taken at a time */
  int slot_count;                 /* one more, so that neither keeps the other out; direct: lanes */
  struct slot slots[SLOTS_MAX];
  struct backend_turns turns[CUDA_TURNS];
  struct measured measured;
  struct cold cold;
  struct region trial_staging; /* beside `trial`: copies of it as kernels of stored weights read them */
  uint8_t *trial_y;            /* in `trial`: where y of what is measured goes, dense */
  struct backend_arena trial;  /* of tensors/trial.h; of no device memory: there is none */
  _Atomic uint64_t longest_ns; /* predicted, of what was queued in one go */
};

/* Makes the device current for the calling thread. */
MUST_CHECK enum status backend_enter(struct backend *backend, struct error *error);
/* For what is asked of the device: a number at a time. What it took before it failed is in *side. */
MUST_CHECK enum status side_open(struct side *side, struct error *error);
