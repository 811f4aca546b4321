/* The families of kernels that the cuda backend can be tuned in, and what their parameters stand for: cuBLASLt's
 * algorithms by all their attributes and the configurations of our kernels; those for INT2 are int2/variants.h's, tiles
 * that are compiled at run time tile/config.h's. */
#ifndef KERNELS_CUDA_HEURISTICS_FAMILIES_H
#define KERNELS_CUDA_HEURISTICS_FAMILIES_H

#include "../../variant.h"
#include "choice.h"

extern const struct variant_family library_family, hopper_family, few_family, many_family, fp8_many_family;

/* Only of a variant of that family. */
struct hopper_config hopper_of(const struct variant *variant);
struct few_config few_of(const struct variant *variant);
struct many_config many_of(const struct variant *variant);
struct fp8_many_config fp8_many_of(const struct variant *variant);

struct variant variant_of_hopper(const struct hopper_config *config);
struct variant variant_of_few(const struct few_config *config);
struct variant variant_of_many(const struct many_config *config);
struct variant variant_of_fp8_many(const struct fp8_many_config *config);
/* `way` as choice_library_way has it. */
struct variant variant_of_library(int way, const int32_t attributes[ALGORITHM_ATTRIBUTES]);

bool variant_is_int2(const struct variant *variant);

#endif
