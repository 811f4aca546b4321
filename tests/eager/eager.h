/* What gemm-eager's files share. A failure ends the program with a sentence. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Calls of one kind: `once` queues the i-th. */
struct call {
  void (*once)(void *context, int i);
  void *context;
};

_Noreturn void eager_give_up(const char *what, const char *why);
/* Microseconds of the calling thread for one; see eager.c. Several: by turns. */
enum { EAGER_CALLS_MOST = 4 };
void eager_times(const struct call *calls, int count, double *us);
double eager_time(const struct call *call);

/* ---- gpu.c: the driver, device 0 */

void gpu_open(void);
/* Device memory of finite bf16 values, aligned to 256 bytes; stays until the end. */
void *gpu_take(size_t bytes);
void *gpu_stream(void);
void gpu_wait(void);
/* An empty kernel as products launch theirs; `i` is one of its parameters. */
void gpu_launch(int i);
/* What a call of the driver takes that a product cannot do without, a row each. */
void gpu_print(void);

/* ---- library.c: cuBLASLt */

/* bf16 products of [m, k] by [n, k], the algorithm chosen before: host time of one. Negative: there is no library. */
double library_time(int64_t m, int64_t n, int64_t k);
