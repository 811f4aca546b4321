/* What a load takes from a file and what it becomes: the tensor, its scales, the canonical weight. No I/O. */
#ifndef LOADER_SOURCE_H
#define LOADER_SOURCE_H

#include "../../proto/gemm.h"
#include "../../proto/message.h"
#include "../../proto/weights/safetensors.h"

struct source {
  struct gemm_weight weight; /* checked */
  struct gemm_layout layout;
  enum message_method method;                       /* DEFAULT: nothing is quantized, the values go over as they are */
  bool stored;                                      /* the tensor holds codes, `scales` what they are multiplied by */
  bool trirun;                                      /* both of them as trirun.h has it; stored, too */
  const struct safetensors_tensor *tensor, *scales; /* of the file; scales NULL unless stored */
};

/* Finds the tensor and, where it is quantized already (I8, F8_E4M3, U8 for INT2), its scales.
 *
 * Scales: the tensor that the request names, else the first that the file has of
 *   <tensor>_scale, <tensor>_scale_inv, <tensor>.scale,
 *   and, <stem> being the tensor's name up to its last dot,
 *   <stem>.weight_scale, <stem>.weight_scale_inv, <stem>.scale, <stem>.scales, <stem>.scale_weight
 * All of them are factors (weight = code * scale), those called _inv too, as checkpoints in the wild have it. F32, F16
 * or BF16 (INT2: F16). Their shape is the scale mode: one element ONE, [N] or [N, 1] ROW, [ceil(N/128), ceil(K/128)]
 * BLOCK (FP8), [N, ceil(K/128)] GROUP (INT2).
 *
 * INT2 is stored as U8 [N, K/4], four codes a byte, the first in the lowest bits; K is four times the columns. Or it is
 * an I32 tensor <stem>.B as TriRun packs it (trirun.h), with <stem>.s in place of the names above. */
MUST_CHECK enum status source_resolve(const struct safetensors *file, const struct message_weight_load *request,
                                      struct source *out, struct error *error);

#endif
