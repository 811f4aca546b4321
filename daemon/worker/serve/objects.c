#include "objects.h"

enum status engine_session_open(struct engine_session *session, uint32_t entries, uint32_t devices, uint32_t device,
                                uint32_t generation, struct error *error) {
  session->tensor_offset = ring_tensor_offset(entries, devices);
  session->removal = NULL;
  session->served = false;
  handles_init(&session->handles);
  handles_init(&session->tensors);
  handles_init(&session->events);
  ring_worker_init(&session->ring, session->base, entries, device, generation);
  /* One more than products can be: a cancellation needs a slot for a moment, too. */
  return queue_lane_open(&session->lane, session, entries + 1, error);
}

void engine_session_close(struct engine_session *session) {
  handles_close(&session->handles);
  handles_close(&session->tensors);
  handles_close(&session->events);
  queue_lane_close(&session->lane);
}
