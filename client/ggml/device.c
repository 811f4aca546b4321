#include "gemmd_ggml.h"

#include <stdio.h>
#include <stdlib.h>

static struct device device = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct device *device_get(void) {
  return &device;
}

static void device_describe(void) {
  gemmd_daemon_info *info = malloc(sizeof *info);
  if (info != NULL && gemmd_daemon_status(device.session, info) == GEMMD_OK) {
    snprintf(device.description, sizeof device.description, "gemmd: %.100s", info->device[0].name);
    for (uint32_t i = 0; i < info->devices; i++) {
      device.memory_total += info->device[i].memory_total;
      device.memory_used += info->device[i].memory_used;
    }
  }
  free(info);
}

/* Not every backend of gemmd has kernels for 4 bits, and nothing but a load says so. */
static bool takes_int4(void) {
  uint8_t block[18] = {0};
  struct ggml_tensor tensor = {.type = GGML_TYPE_Q4_0, .ne = {32, 1, 1, 1}, .data = block};
  struct file file;
  gemmd_load load = {.name = "ggml-probe", .tensor = "weight", .format = type_format(tensor.type), .device = -1};
  if (!encode(&tensor, &file))
    return false;
  int status = gemmd_weight_load(device.session, file.fd, &load, NULL);
  encode_close(&file);
  if (status == GEMMD_OK)
    (void)gemmd_weight_unload(device.session, load.name, NULL);
  return status == GEMMD_OK || status == GEMMD_EXISTS;
}

bool device_connect(void) {
  gemmd_options options = {.name = "ggml"};
  int status = gemmd_connect(&device.session, NULL, &options);
  for (int i = 0; i < SLOTS && status == GEMMD_OK; i++) {
    device.slots[i].x = gemmd_alloc(device.session, SLOT_BYTES);
    device.slots[i].y = gemmd_alloc(device.session, SLOT_BYTES);
    if (device.slots[i].x == NULL || device.slots[i].y == NULL)
      status = GEMMD_NOMEM;
  }
  if (status == GEMMD_OK) {
    device_describe();
    device.has_int4 = takes_int4();
    return true;
  }
  fprintf(stderr, "gemmd: no device for ggml: %s\n",
          device.session != NULL ? gemmd_error(device.session) : gemmd_status_name(status));
  gemmd_disconnect(device.session);
  device.session = NULL;
  return false;
}
