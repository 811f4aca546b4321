#include "transfer.h"

#include "../launch/graph.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- a registered arena: the device copies by itself */

static cudaError_t direct(struct slot *slot, const struct rows *rows, bool in, enum cudaMemcpyKind kind) {
  cudaStream_t stream = graph_stream(slot);
  uint8_t *to = in ? rows->device : rows->host;
  const uint8_t *from = in ? rows->host : rows->device;
  uint64_t to_stride = in ? rows->device_stride : rows->host_stride;
  uint64_t from_stride = in ? rows->host_stride : rows->device_stride;
  if (rows->rows == 1 || (to_stride == rows->row_bytes && from_stride == rows->row_bytes))
    return cudaMemcpyAsync(to, from, rows->rows * rows->row_bytes, kind, stream);
  if (to_stride <= INT_MAX && from_stride <= INT_MAX)
    return cudaMemcpy2DAsync(to, to_stride, from, from_stride, rows->row_bytes, rows->rows, kind, stream);
  /* Strides beyond what a copy takes. */
  cudaError_t result = cudaSuccess;
  for (uint64_t row = 0; row < rows->rows && result == cudaSuccess; row++)
    result = cudaMemcpyAsync(to + row * to_stride, from + row * from_stride, rows->row_bytes, kind, stream);
  return result;
}

/* The pieces that an arena is registered in, one after the other: whole rows where they lie in one, else parts of a
 * row. */

static uint64_t left_in_piece(const struct backend_arena *arena, const uint8_t *host) {
  return ARENA_PIECE - (uint64_t)(host - arena->base) % ARENA_PIECE;
}

static cudaError_t row_by_pieces(struct slot *slot, const struct backend_arena *arena, const struct rows *row, bool in,
                                 enum cudaMemcpyKind kind) {
  cudaError_t result = cudaSuccess;
  for (uint64_t column = 0; column < row->row_bytes && result == cudaSuccess;) {
    struct rows part = *row;
    part.device = (uint8_t *)row->device + column;
    part.host = (uint8_t *)row->host + column;
    uint64_t left = left_in_piece(arena, part.host);
    part.row_bytes = row->row_bytes - column < left ? row->row_bytes - column : left;
    result = direct(slot, &part, in, kind);
    column += part.row_bytes;
  }
  return result;
}

static cudaError_t by_pieces(struct slot *slot, const struct backend_arena *arena, const struct rows *rows, bool in,
                             enum cudaMemcpyKind kind) {
  cudaError_t result = cudaSuccess;
  for (uint64_t row = 0; row < rows->rows && result == cudaSuccess;) {
    struct rows part = *rows;
    part.device = (uint8_t *)rows->device + row * rows->device_stride;
    part.host = (uint8_t *)rows->host + row * rows->host_stride;
    uint64_t left = left_in_piece(arena, part.host), more = rows->rows - row;
    uint64_t fit = left < rows->row_bytes ? 0 : more == 1 ? 1 : 1 + (left - rows->row_bytes) / rows->host_stride;
    part.rows = fit == 0 ? 1 : fit < more ? fit : more;
    result = fit == 0 ? row_by_pieces(slot, arena, &part, in, kind) : direct(slot, &part, in, kind);
    row += part.rows;
  }
  return result;
}

/* ---- an arena that the device cannot reach: pieces of it go through the slot's pinned memory. A thread of the
 * driver moves them between two steps of the stream, so that submit does not wait. */

struct piece {
  uint8_t *to;
  const uint8_t *from;
  uint64_t to_stride, from_stride, row_bytes, rows;
};

static void CUDART_CB piece_move(void *data) {
  struct piece *piece = data;
  for (uint64_t row = 0; row < piece->rows; row++)
    memcpy(piece->to + row * piece->to_stride, piece->from + row * piece->from_stride, piece->row_bytes);
  free(piece);
}

static cudaError_t piece_queue(struct slot *slot, struct piece piece) {
  struct piece *kept = malloc(sizeof *kept);
  if (!kept)
    return cudaErrorMemoryAllocation;
  *kept = piece;
  cudaError_t result = cudaLaunchHostFunc(graph_stream(slot), piece_move, kept);
  if (result != cudaSuccess)
    free(kept);
  return result;
}

/* `part` fits into the bounce memory. */
static cudaError_t part_bounce(struct slot *slot, const struct rows *part, enum cudaMemcpyKind kind) {
  struct rows bounced = *part;
  bounced.host = slot->bounce;
  bounced.host_stride = part->row_bytes;
  struct piece piece = {.row_bytes = part->row_bytes, .rows = part->rows};
  if (kind == cudaMemcpyHostToDevice) {
    piece.to = slot->bounce, piece.to_stride = part->row_bytes;
    piece.from = part->host, piece.from_stride = part->host_stride;
    cudaError_t result = piece_queue(slot, piece);
    return result == cudaSuccess ? direct(slot, &bounced, true, kind) : result;
  }
  piece.to = part->host, piece.to_stride = part->host_stride;
  piece.from = slot->bounce, piece.from_stride = part->row_bytes;
  cudaError_t result = direct(slot, &bounced, false, kind);
  return result == cudaSuccess ? piece_queue(slot, piece) : result;
}

static cudaError_t bounce(struct slot *slot, const struct rows *rows, enum cudaMemcpyKind kind) {
  uint64_t width = rows->row_bytes < BOUNCE_BYTES ? rows->row_bytes : BOUNCE_BYTES;
  uint64_t height = BOUNCE_BYTES / width;
  cudaError_t result = cudaSuccess;
  for (uint64_t row = 0; row < rows->rows; row += height) {
    for (uint64_t column = 0; column < rows->row_bytes && result == cudaSuccess; column += width) {
      struct rows part = *rows;
      part.row_bytes = rows->row_bytes - column < width ? rows->row_bytes - column : width;
      part.rows = rows->rows - row < height ? rows->rows - row : height;
      part.device = (uint8_t *)rows->device + row * rows->device_stride + column;
      part.host = (uint8_t *)rows->host + row * rows->host_stride + column;
      result = part_bounce(slot, &part, kind);
    }
  }
  return result;
}

/* Memory of the device itself stands in the host's place where another process has exported it. */
cudaError_t transfer_in(struct slot *slot, const struct backend_arena *arena, const struct rows *rows) {
  if (arena->imported_bytes > 0)
    return direct(slot, rows, true, cudaMemcpyDeviceToDevice);
  return arena->device ? by_pieces(slot, arena, rows, true, cudaMemcpyHostToDevice)
                       : bounce(slot, rows, cudaMemcpyHostToDevice);
}

cudaError_t transfer_out(struct slot *slot, const struct backend_arena *arena, const struct rows *rows) {
  if (arena->imported_bytes > 0)
    return direct(slot, rows, false, cudaMemcpyDeviceToDevice);
  return arena->device ? by_pieces(slot, arena, rows, false, cudaMemcpyDeviceToHost)
                       : bounce(slot, rows, cudaMemcpyDeviceToHost);
}
