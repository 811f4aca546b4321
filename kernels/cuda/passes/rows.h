/* Rows that lie apart, to dense ones on the device and back. Each launcher queues on the stream and returns what the
 * launch said. */
#pragma once

#include "../linkage.h"

#include <driver_types.h>
#include <stdint.h>

C_LINKAGE_BEGIN

/* Rows wherever they lie, as the device addresses them: mapped host memory, too. */
enum { ROW_TABLE = 64 };
struct row_table {
  const void *rows[ROW_TABLE];
};

/* `rows` of the table's rows to dense ones, and back. Any alignment; multiples of 16 are fast. */
cudaError_t launch_rows_gather(cudaStream_t stream, const struct row_table *from, int rows, uint64_t row_bytes,
                               void *to, uint64_t to_stride);
cudaError_t launch_rows_scatter(cudaStream_t stream, const void *from, uint64_t from_stride, int rows,
                                uint64_t row_bytes, const struct row_table *to);

C_LINKAGE_END
