/* A file of weights, from its first byte to a canonical weight. Every format is asked of the tensor "w". */
#include "daemon/loader/load.h"
#include "proto/message.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct message_load_done done;
  struct error error;
  if (size > 1 << 16)
    return 0;
  int file = memfd_create("fuzz", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != (ssize_t)size)
    abort();
  for (uint32_t format = 1; format <= 5; format++) {
    struct message_weight_load request = {.name = "w", .tensor = "w", .format = format};
    int weight = -1;
    enum status status = load_run(&request, file, 1, NULL, NULL, &done, &weight, &error);
    if ((status == STATUS_OK) != (weight >= 0) || (status != STATUS_OK && error.text[0] == '\0'))
      abort();
    if (weight >= 0)
      close(weight);
  }
  close(file);
  return 0;
}
