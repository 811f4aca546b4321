#include "question.h"

#include "../exec/staging.h"
#include "families.h"

/* Any device memory will do as operands: the library looks at the alignment alone. */
enum status question_ask(struct backend *backend, const struct variant_problem *problem, struct question *out,
                         struct error *error) {
  uint32_t layout = layout_choose(&problem->weight, backend->capability, backend->places);
  enum status status = layout_compute(&problem->weight, layout, &out->layout, error);
  if (status != STATUS_OK)
    return status;
  out->x_type = problem->x_type;
  out->m = problem->m;
  void *anywhere = (void *)(uintptr_t)backend->slots[0].workspace.address;
  out->request = (struct choice_request){.weight = &problem->weight,
                                         .n = out->layout.n,
                                         .k = out->layout.k,
                                         .m = staging_pad(&problem->weight, problem->m),
                                         .y_type = problem->y_type,
                                         .bias_type = problem->bias_type};
  out->operands = (struct library_product){.format = problem->weight.format,
                                           .n = out->layout.n,
                                           .k = out->layout.k,
                                           .m = out->request.m,
                                           .w = anywhere,
                                           .x = anywhere,
                                           .w_scale = anywhere,
                                           .x_scale = anywhere,
                                           .d = anywhere,
                                           .bias = anywhere};
  return STATUS_OK;
}

struct library_product question_product(const struct question *question, const struct choice *choice) {
  struct library_product product = question->operands;
  product.scale = choice->scale;
  product.d_type = choice->d_type;
  product.bias_type = choice->biased ? question->request.bias_type : GEMM_TYPE_NONE;
  return product;
}

struct tile_problem question_tile(const struct question *question) {
  return (struct tile_problem){.format = question->request.weight->format,
                               .scale = question->request.weight->scale,
                               .x_type = question->x_type,
                               .tiled = layout_is_tiled(&question->layout),
                               .m = question->request.m,
                               .n = question->layout.n,
                               .k = question->layout.k};
}

struct int2_problem question_int2(const struct backend *backend, const struct question *question) {
  const struct gemm_weight *weight = question->request.weight;
  return (struct int2_problem){.format = weight->format,
                               .x_type = question->x_type,
                               .y_type = question->request.y_type,
                               .m = question->m,
                               .n = weight->n,
                               .k = weight->k,
                               .sms = backend->multiprocessors};
}

struct variant question_own(struct backend *backend, const struct question *question) {
  struct int2_problem int2 = question_int2(backend, question);
  if (gemm_is_int2(int2.format))
    return layout_is_tiled(&question->layout) ? int2_own(&int2) : variant_default(&variant_plain);
  struct choice choice =
      choice_find(backend->choices, &backend->library, &question->request, &question->operands, false);
  struct choice way;
  int32_t attributes[ALGORITHM_ATTRIBUTES];
  if (choice.way == CHOICE_HOPPER)
    return variant_of_hopper(&choice.hopper);
  if (choice.way == CHOICE_FEW)
    return variant_of_few(&choice.few);
  if (choice.way == CHOICE_MANY)
    return variant_of_many(&choice.many);
  if (choice.way == CHOICE_FP8_MANY)
    return variant_of_fp8_many(&choice.fp8_many);
  if (choice.way == CHOICE_PLAIN)
    return variant_default(&variant_plain);
  int number = 0;
  while (!choice_library_way(&question->request, number, &way) || way.d_type != choice.d_type ||
         way.scaled != choice.scaled || way.biased != choice.biased)
    number++;
  library_attributes(&backend->library, &choice.algorithm, attributes);
  return variant_of_library(number, attributes);
}
