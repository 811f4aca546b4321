#include "answer.h"

#include "../../../memfd.h"

enum status answer_check(const struct load *load, struct error *error) {
  const struct message_load_done *done = &load->done;
  struct gemm_weight shape = {.n = done->n,
                              .k = done->k,
                              .format = (enum gemm_format)done->format,
                              .scale = (enum gemm_scale)done->scale,
                              .experts = done->experts,
                              .input = done->input};
  struct gemm_layout layout;
  enum status status = gemm_layout_compute(&shape, &layout, error);
  if (status != STATUS_OK)
    return status;
  if (done->format != load->request.format || (load->request.scale != 0 && done->scale != load->request.scale))
    return error_set(error, STATUS_INTERNAL, "the loader made %s/%s of what was to be %s/%s",
                     gemm_format_name(shape.format), gemm_scale_name(shape.scale),
                     gemm_format_name((enum gemm_format)load->request.format),
                     gemm_scale_name((enum gemm_scale)load->request.scale));
  if (done->experts != load->request.experts)
    return error_set(error, STATUS_INTERNAL, "the loader made %u experts of what was to be %u", done->experts,
                     load->request.experts);
  uint64_t bytes = layout.total_bytes;
  if (done->numbers != 0 && (!load->request.raw || done->experts != 0 || done->numbers > GEMM_BF16))
    return error_set(error, STATUS_INTERNAL, "the loader left numbers of type %u to a device", done->numbers);
  if (done->numbers != 0)
    bytes = (uint64_t)done->n * (uint64_t)done->k * gemm_type_bytes((enum gemm_type)done->numbers);
  if (done->bytes != bytes)
    return error_set(error, STATUS_INTERNAL, "the loader made %llu bytes where %llu are needed",
                     (unsigned long long)done->bytes, (unsigned long long)bytes);
  return memfd_check(load->canonical, bytes, true, error);
}
