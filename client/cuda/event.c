#include "../gemmclient_cuda.h"
#include "failure.h"

#include <stdlib.h>

struct gemmd_cuda_event {
  const struct driver *driver;
  driver_event event;
  gemmd_event *shared;
};

static int share(struct gemmd_cuda_event *event, gemmd_session *session, unsigned device) {
  struct driver_ipc handle;
  int status =
      failure_check(event->driver, event->driver->cuIpcGetEventHandle(&handle, event->event), "exporting an event");
  if (status != GEMMD_OK)
    return status;
  status = gemmd_event_open(session, device, handle.bytes, &event->shared);
  return status == GEMMD_OK ? status : failure_set(status, "%s", gemmd_error(session));
}

int gemmd_cuda_event_create(gemmd_session *session, unsigned device, gemmd_cuda_event **out) {
  const char *why;
  const struct driver *driver = driver_table(&why);
  *out = NULL;
  if (driver == NULL)
    return failure_set(GEMMD_UNSUPPORTED, "%s", why);
  struct gemmd_cuda_event *event = calloc(1, sizeof *event);
  if (event == NULL)
    return failure_set(GEMMD_NOMEM, "no memory for an event");
  event->driver = driver;
  int status = failure_check(driver, driver->cuEventCreate(&event->event, DRIVER_EVENT_SHARED), "making an event");
  if (status == GEMMD_OK) {
    status = share(event, session, device);
    if (status != GEMMD_OK)
      (void)driver->cuEventDestroy_v2(event->event);
  }
  if (status != GEMMD_OK) {
    free(event);
    return status;
  }
  *out = event;
  return GEMMD_OK;
}

int gemmd_cuda_event_record(gemmd_cuda_event *event, void *stream) {
  return failure_check(event->driver, event->driver->cuEventRecord(event->event, stream), "recording an event");
}

const gemmd_event *gemmd_cuda_event_get(const gemmd_cuda_event *event) {
  return event->shared;
}

int gemmd_cuda_event_free(gemmd_cuda_event *event) {
  if (event == NULL)
    return GEMMD_OK;
  int status = gemmd_event_close(event->shared);
  if (status == GEMMD_BUSY)
    return failure_set(status, "products in flight wait for the event");
  if (status != GEMMD_OK)
    return failure_set(status, "gemmd has not said that it lets go of the event: %s", gemmd_status_name(status));
  (void)event->driver->cuEventDestroy_v2(event->event);
  free(event);
  return GEMMD_OK;
}
