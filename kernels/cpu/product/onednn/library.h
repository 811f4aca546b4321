/* oneDNN as one more way to multiply: opened at run time, absent is fine. Quantizing x, scales, bias and y's type stay
 * ours; the library gets codes and gives exact s32 or f32 sums. It wants W in an order of its own, so a weight that it
 * multiplies has a copy, made when it first does and counted against a limit.
 *
 * Each thread of the pool lets the library multiply its share of the columns with one thread: no others come into
 * being. */
#pragma once

#include "../../../backend.h"
#include "../../pool.h"
#include "../stage.h"

struct cpu_library;
struct library_copy; /* of a weight */

extern const struct variant_family cpu_family_onednn;

/* For so many threads, with copies of at most `bytes` together; 0: none, and *out is NULL, as where the library is not
 * there or the processor lacks exact integer products. */
MUST_CHECK enum status cpu_library_open(int threads, uint64_t bytes, struct cpu_library **out, struct error *error);
void cpu_library_close(struct cpu_library *library);

/* " onednn 2.6.0", or "" where `library` is NULL: what times depend on. */
enum { CPU_LIBRARY_NAME_BYTES = 48 };
const char *cpu_library_name(const struct cpu_library *library, char out[CPU_LIBRARY_NAME_BYTES]);

/* Whether weights like this can be multiplied at all: INT8, BF16, and FP8 but with block scales. `library` may be
 * NULL. */
MUST_CHECK enum status cpu_library_takes(const struct cpu_library *library, const struct gemm_weight *shape,
                                         enum micro_kind kind, struct error *error);

/* By the thread that runs the pool, before its parts: everything for products of the stage's first `rows` rows with the
 * weight. NOMEM beyond the limit. */
MUST_CHECK enum status cpu_library_prepare(struct cpu_library *library, struct backend_weight *weight,
                                           const struct stage *stage, int64_t rows, struct error *error);
/* So many rows the stage must have room for; what the others hold does not matter. */
int64_t cpu_library_rows(int64_t rows);
/* By each part: its columns of the job's rows from `first` on, all the way into y. */
void cpu_library_part(struct cpu_library *library, const struct micro_ops *micro, const struct backend_job *job,
                      const struct stage *stage, int64_t first, int64_t rows, int part);
/* By the thread that runs the pool, after its parts: whether the library has failed to multiply one since the last
 * call. Its columns of y are not there then. */
bool cpu_library_failed(struct cpu_library *library);
/* Frees the weight's copy. */
void cpu_library_forget(struct cpu_library *library, struct backend_weight *weight);
/* Bytes of all copies at the moment; by any thread. `library` may be NULL. */
uint64_t cpu_library_used(const struct cpu_library *library);
