/* The worker's side of the supervisor's socket. Commands are carried out one after the other in order of arrival, so
 * that the supervisor may send a command that depends on an earlier one without waiting. What takes time runs on
 * libuv's thread pool, one at a time, and beside it what goes to the disk, in order: a slow one holds up nothing. Two
 * commands wait for the device, session_remove and weight_detach: while they do, the next ones go on. */
#pragma once

#include "control_state.h"

struct control_options {
  uv_loop_t *loop;
  int socket, device;
  const struct backend_ops *ops;
  struct backend *backend;
  struct tuner_options tune; /* all but ops, backend, device and notify */
  uint32_t in_flight, batch_rows;
  uint64_t spin_us, batch_window_us, event_timeout_us;
};

/* Starts to serve `socket` on `loop`, in a struct of zeros. Socket and backend stay the caller's; products are the
 * engine's. */
MUST_CHECK enum status control_start(struct control *control, const struct control_options *options,
                                     struct error *error);
/* After the loop has ended: stops the engine and gives all back to the backend, which stays open. Not after the loss
 * of the device: what is held then ends with the process. */
void control_close(struct control *control);
/* The supervisor is gone: nothing more is received or sent, and the loop ends when what is under way has. */
void control_end(struct control *control);
