/* `quantize` for a folder with a model: what its layers see takes the model to be computed, which transformers does. */
#pragma once

#include "../ctl.h"

/* Becomes `python3 -m gemmclient.quantize` ($GEMMD_PYTHON where it is set), which calls this program for every layer.
 * Returns where that cannot be. */
enum tool_exit quantize_model(const struct tool_call *call);
