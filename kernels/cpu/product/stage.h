/* Rows of x as the inner loops take them: widened, quantized where the weight's format says so, padded with zeros, and
 * in memory of our own, because a client may change its arena at any time. */
#pragma once

#include "../../backend.h"
#include "../micro/micro.h"
#include "../weight/weight.h"

enum { STAGE_ROWS = 512 }; /* at most: so many rows of sums stay in each core's cache */

struct stage {
  enum micro_kind kind;
  int64_t rows;        /* that it has room for */
  int64_t k;           /* of the weight, padded */
  int64_t steps;       /* of the kind, in k */
  int64_t stride;      /* dwords from one row to the next */
  int64_t groups;      /* of the weight's in k, rounded up */
  uint32_t *values;    /* [rows][stride] */
  int tile_rows;       /* of an instruction set's largest tile */
  int64_t interleaved; /* rows, from the first on: [steps][tile_rows] of each tile_rows of them in place of
                          [tile_rows][stride]. A multiple; 0 once the stage has been laid out */
  int32_t *starts;     /* INTEGER, WORDS: what takes the offset of unsigned W out of the sums. INT8: [rows]; INT2A8,
                          INT4A8: [groups][rows] */
  float *group_scales; /* [groups][rows]; of BLOCK weights */
  double *factors;     /* [rows]: what a row's sums are multiplied with */
  bool *ordinary;      /* [rows]: cpu_weight_is_ordinary of each factor */
  float *scratch;      /* [threads][scratch_stride] */
  int64_t scratch_stride;
  void *memory; /* owned; holds all of these */
  uint64_t memory_bytes;
};

/* What x becomes for this weight. */
enum micro_kind cpu_stage_kind(const struct gemm_weight *shape, const struct micro_ops *micro);

/* Lays the stage out for products with this weight and at most m rows at a time; `dense`: with nothing between them. It
 * has room for a full tile of them, or for fewer, `rows_least`, where K is so long that these would be too much memory.
 * NOMEM with the stage as it was. */
MUST_CHECK enum status cpu_stage_prepare(struct stage *stage, const struct backend_weight *weight,
                                         const struct micro_ops *micro, int64_t m, int64_t rows_least, bool dense,
                                         int threads, struct error *error);
/* Whether so many rows may be interleaved. */
bool cpu_stage_interleaves(const struct micro_ops *micro, enum micro_kind kind, int64_t rows);
/* How many rows at a time the stage has room for, asked for without `dense` and with rows_least 1. */
int64_t cpu_stage_room(const struct backend_weight *weight, const struct micro_ops *micro);
void cpu_stage_free(struct stage *stage);

/* Row `row` of the job's x to place `place`. Threads may do this at the same time for different places. */
void cpu_stage_row(struct stage *stage, const struct micro_ops *micro, const struct backend_job *job, int64_t row,
                   int64_t place, int thread);
/* What is at place `from`, which the same thread has put there, to another place, too. */
void cpu_stage_copy(struct stage *stage, const struct gemm_weight *shape, int64_t from, int64_t place);
