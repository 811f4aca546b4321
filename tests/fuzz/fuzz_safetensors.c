/* A file of weights, from its first byte to a canonical weight. Every format is asked of the tensor "w", blocks of
 * scales, too, and 2-bit ones of "t.B", as TriRun packs them. */
#include "daemon/loader/load.h"
#include "proto/gemm.h"
#include "proto/wire/message.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct message_weight_load requests[] = {
    {.tensor = "w", .format = GEMM_FORMAT_INT8},
    {.tensor = "w", .format = GEMM_FORMAT_FP8},
    {.tensor = "w", .format = GEMM_FORMAT_FP8, .scale = GEMM_SCALE_BLOCK},
    {.tensor = "w", .format = GEMM_FORMAT_INT2},
    {.tensor = "w", .format = GEMM_FORMAT_INT2, .scale = GEMM_SCALE_ROW, .method = GEMM_METHOD_TERNARY},
    {.tensor = "w", .format = GEMM_FORMAT_INT2A8},
    {.tensor = "w", .format = GEMM_FORMAT_F16},
    {.tensor = "w", .format = GEMM_FORMAT_BF16},
    {.tensor = "w", .format = GEMM_FORMAT_INT4},
    {.tensor = "w", .format = GEMM_FORMAT_INT4A8, .scale = GEMM_SCALE_GROUP32_BF16_ZEROS, .method = GEMM_METHOD_ABSMAX},
    {.tensor = "w", .format = GEMM_FORMAT_MXFP4},
    {.tensor = "t.B", .format = GEMM_FORMAT_INT2},
    {.tensor = "t.B", .format = GEMM_FORMAT_INT2A8},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct message_load_done done;
  struct error error;
  if (size > 1 << 16)
    return 0;
  int file = memfd_create("fuzz", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != (ssize_t)size)
    abort();
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    int weight = -1;
    enum status status = load_run(&requests[i], &file, 1, 1, NULL, NULL, &done, &weight, &error);
    if ((status == STATUS_OK) != (weight >= 0) || (status != STATUS_OK && error.text[0] == '\0'))
      abort();
    if (weight >= 0)
      close(weight);
  }
  close(file);
  return 0;
}
