/* A GGUF file, from its first byte to canonical weights: every tensor that its header lists, in the formats that its
 * kind goes to. */
#include "daemon/loader/file.h"
#include "daemon/loader/load.h"
#include "proto/gemm.h"
#include "proto/wire/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TENSORS_MOST = 4 };

static void load(int file, const char *tensor, enum gemm_format format) {
  struct message_weight_load request = {.format = format};
  struct message_load_done done;
  struct error error;
  int weight = -1;
  snprintf(request.tensor, sizeof request.tensor, "%s", tensor);
  enum status status = load_run(&request, &file, 1, 1, NULL, NULL, &done, &weight, &error);
  if ((status == STATUS_OK) != (weight >= 0) || (status != STATUS_OK && error.text[0] == '\0'))
    abort();
  if (weight >= 0)
    close(weight);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const enum gemm_format formats[] = {GEMM_FORMAT_INT8, GEMM_FORMAT_INT2, GEMM_FORMAT_BF16, GEMM_FORMAT_INT4,
                                             GEMM_FORMAT_MXFP4};
  struct files files;
  struct error error = {.status = STATUS_OK};
  if (size > 1 << 16)
    return 0;
  int file = memfd_create("fuzz", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != (ssize_t)size)
    abort();
  if (files_open(&files, &file, 1, false, &error) == STATUS_OK) {
    for (size_t i = 0; i < files.model.count && i < TENSORS_MOST; i++)
      for (size_t j = 0; j < sizeof formats / sizeof *formats; j++)
        load(file, files.model.entries[i].tensor->name, formats[j]);
  } else if (error.text[0] == '\0') {
    abort();
  }
  files_close(&files);
  close(file);
  return 0;
}
