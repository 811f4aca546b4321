/* The loop over blocks: one panel of W with some rows of the stage, by one thread. */
#pragma once

#include "../../backend.h"
#include "stage.h"

struct block_sizes {
  int tile_rows;   /* of x in a tile; 0: as many as the instruction set likes */
  int block_bytes; /* of W, as dwords, that several tiles use in turn; 32 KiB at least */
  int table_bytes; /* of x as tables, for INT2; one group of MICRO_TABLE_ROWS is the least */
};
extern const struct block_sizes block_sizes_default;

/* One thread's memory. */
struct block_space {
  uint32_t *block; /* W as dwords */
  void *sums;      /* [rows][MICRO_WIDTH] s32 or f32 */
  float *tables;
  void *memory; /* owned; holds all of these */
  uint64_t memory_bytes;
};

struct block_task {
  const struct micro_ops *micro;
  const struct block_sizes *sizes;
  const struct stage *stage;
  const struct backend_job *job;
  int64_t first;              /* the row of x and y that is the stage's first */
  int64_t row_begin, row_end; /* of the stage */
  bool rows_ordinary;         /* none of them needs more than f32: stage->ordinary of all */
  /* Of the stage's; 0, 0: all. Where these are not all of them, one panel is computed at a time, by one thread with the
   * same rows, from the first steps to the last: its sums stay in the thread's space. cpu_block_divides. */
  int64_t step_begin, step_end;
};

/* Makes room for one thread. NOMEM with the space as it was. */
MUST_CHECK enum status cpu_block_prepare(struct block_space *space, const struct block_sizes *sizes,
                                         const struct stage *stage, struct error *error);
void cpu_block_free(struct block_space *space);

/* How many of the stage's `rows` rows are to be interleaved: all whole tiles, where those read W unpacked. */
int64_t cpu_block_interleaves(const struct micro_ops *micro, const struct block_sizes *sizes, const struct stage *stage,
                              enum gemm_format format, int64_t rows);
/* Elements of K at a multiple of which a product may be divided; 0: at none. */
int64_t cpu_block_divides(const struct micro_ops *micro, const struct gemm_weight *shape);
/* True where what is made of some rows serves all panels that are computed in one call: then few rows with many panels
 * are better than the other way round. */
bool cpu_block_shares(const struct micro_ops *micro, const struct gemm_weight *shape);
/* Columns of panels [begin, end) of the task's rows, all the way into y. */
void cpu_block_run(const struct block_task *task, struct block_space *space, int64_t begin, int64_t end);
