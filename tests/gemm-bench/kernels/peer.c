#include "peer.h"

#include <stddef.h>

extern const struct peer_ops peer_dnnl, peer_ggml;

const struct peer_ops *const peer_table[] = {&peer_dnnl, &peer_ggml, NULL};
