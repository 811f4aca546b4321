/* The rings of a session's devices; private. */
#pragma once

#include "../session/exchange.h"

/* Opens the rings of a device unless they are open, by exchange_call or control_call. */
MUST_CHECK enum status queue_open(struct gemmd_session *session, uint32_t device, call_function *how);
void queue_close(struct queue *queue);
bool queue_failed(const struct queue *queue);
/* Takes what a lost daemon's worker had still answered. */
void queues_salvage(struct gemmd_session *session);
/* Submits every part again that has no answer, to rings that are new. */
void queues_submit_all(struct gemmd_session *session);
/* Submits one part. The queue is open and has room. */
void queue_submit(struct gemmd_session *session, struct request *request, uint32_t part);
/* Asks the device to drop an open part; false where its ring has no room. */
bool queue_cancel(struct gemmd_session *session, const struct request *request, uint32_t part);
/* True where queues_collect has something to do. Reads shared memory only. */
bool queues_look(const struct gemmd_session *session);
/* Takes in what all devices have answered, until the session ends; submits again what a lost worker left. */
void queues_collect(struct gemmd_session *session);
/* Everything without an answer fails with the reason of the session's end. */
void queues_fail(struct gemmd_session *session);
/* Asks the devices with something in flight to write the wakeup; false where there is something to do first. */
bool queues_sleep(struct gemmd_session *session);
void queues_awake(struct gemmd_session *session);
/* Where an event loop polls gemmd_fd: makes sure that it becomes readable for what is in flight. */
void queues_arm(struct gemmd_session *session);
