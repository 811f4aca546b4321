/* A slot's kernels, held back and started as graphs: launches.h with CUDA behind it. */
#pragma once

#include "../state.h"

extern const struct launch_ops graph_ops;

/* From here on this thread's kernels for the slot's stream are held back. */
void graph_hold(struct slot *slot, uint64_t key);
/* Starts them, and holds no more. What failed since graph_hold. */
cudaError_t graph_release(struct slot *slot);
/* The slot's stream for whatever is no kernel of ours: behind those that were held back. */
cudaStream_t graph_stream(struct slot *slot);
