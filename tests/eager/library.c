#include "eager.h"

#include <cublasLt.h>
#include <dlfcn.h>

#define FUNCTIONS(ROW)                                                                                                 \
  ROW(cublasLtCreate)                                                                                                  \
  ROW(cublasLtMatmulDescCreate)                                                                                        \
  ROW(cublasLtMatmulDescSetAttribute)                                                                                  \
  ROW(cublasLtMatrixLayoutCreate)                                                                                      \
  ROW(cublasLtMatmulPreferenceCreate)                                                                                  \
  ROW(cublasLtMatmulPreferenceSetAttribute)                                                                            \
  ROW(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
  ROW(cublasLtMatmul)

enum { WORKSPACE = 32 << 20 };

static struct {
#define ROW(name) __typeof__(&name) name;
  FUNCTIONS(ROW)
#undef ROW
} lt;

static int open_library(void) {
  static int state; /* 1: open, -1: there is none */
  void *library = NULL;
  if (state != 0)
    return state;
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
  for (int i = 0; i < 2 && library == NULL; i++)
    library = dlopen(names[i], RTLD_NOW);
  state = library != NULL ? 1 : -1;
#define ROW(name)                                                                                                      \
  if (library != NULL && (*(void **)&lt.name = dlsym(library, #name)) == NULL)                                         \
    state = -1;
  FUNCTIONS(ROW)
#undef ROW
  return state;
}

struct product {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t what;
  cublasLtMatrixLayout_t w_layout, x_layout, y_layout;
  cublasLtMatmulHeuristicResult_t found;
  void *w, *x, *y, *workspace;
};

static void must(cublasStatus_t status, const char *what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    eager_give_up(what, "cuBLASLt has refused it");
}

static void once(void *context, int i) {
  struct product *p = context;
  const float one = 1, zero = 0;
  (void)i;
  must(lt.cublasLtMatmul(p->handle, p->what, &one, p->w, p->w_layout, p->x, p->x_layout, &zero, p->y, p->y_layout, p->y,
                         p->y_layout, &p->found.algo, p->workspace, WORKSPACE, gpu_stream()),
       "cublasLtMatmul");
}

/* Column-major, as the library has it: y^T [n, m] = (W^T)^T [n, k] * x^T [k, m]. */
static void describe(struct product *p, int64_t m, int64_t n, int64_t k) {
  const cublasOperation_t transposed = CUBLAS_OP_T;
  cublasLtMatmulPreference_t preference;
  const size_t workspace = WORKSPACE;
  int count = 0;
  must(lt.cublasLtMatmulDescCreate(&p->what, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
  must(lt.cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "W^T");
  must(lt.cublasLtMatrixLayoutCreate(&p->w_layout, CUDA_R_16BF, (uint64_t)k, (uint64_t)n, k), "W");
  must(lt.cublasLtMatrixLayoutCreate(&p->x_layout, CUDA_R_16BF, (uint64_t)k, (uint64_t)m, k), "x");
  must(lt.cublasLtMatrixLayoutCreate(&p->y_layout, CUDA_R_16BF, (uint64_t)n, (uint64_t)m, n), "y");
  must(lt.cublasLtMatmulPreferenceCreate(&preference), "a preference");
  must(lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace),
       "a workspace");
  must(lt.cublasLtMatmulAlgoGetHeuristic(p->handle, p->what, p->w_layout, p->x_layout, p->y_layout, p->y_layout,
                                         preference, 1, &p->found, &count),
       "an algorithm");
}

double library_time(int64_t m, int64_t n, int64_t k) {
  if (open_library() < 0)
    return -1;
  struct product product = {.handle = NULL};
  must(lt.cublasLtCreate(&product.handle), "cublasLtCreate");
  describe(&product, m, n, k);
  product.w = gpu_take((size_t)(n * k) * 2);
  product.x = gpu_take((size_t)(m * k) * 2);
  product.y = gpu_take((size_t)(m * n) * 2);
  product.workspace = gpu_take(WORKSPACE);
  return eager_time(&(struct call){once, &product});
}
