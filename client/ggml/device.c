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
    uint32_t formats = 0;
    device_describe();
    (void)gemmd_device_formats(device.session, 0, &formats);
    device.has_int4 = (formats >> GEMMD_FORMAT_INT4A8 & 1) != 0;
    return true;
  }
  fprintf(stderr, "gemmd: no device for ggml: %s\n",
          device.session != NULL ? gemmd_error(device.session) : gemmd_status_name(status));
  gemmd_disconnect(device.session);
  device.session = NULL;
  return false;
}
