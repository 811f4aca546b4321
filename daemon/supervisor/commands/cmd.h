/* The handlers of clients' commands, by dispatch.c. All generic checks are done: `body` is the decoded request. A
 * handler answers exactly once, now or later. What it does not take out of the packet is closed behind it. */
#ifndef SUPERVISOR_COMMANDS_CMD_H
#define SUPERVISOR_COMMANDS_CMD_H

#include "../../transport.h"
#include "../session/session.h"

void cmd_hello(struct session *session, uint32_t id, const void *body, struct packet *packet);
/* The rest of a hello that came before the workers were ready. */
void cmd_hello_answer(struct session *session);
void cmd_ping(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_metrics(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_status(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_arena_create(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_queue_open(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_arena_adopt(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_upgrade(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_device_retry(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_drain(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_load(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_open(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_close(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_list(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_info(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_borrow(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_return(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_hold(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_tunings_open(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_tune_propose(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_shapes_open(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_ipc_open(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_tensor_open(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_tensor_close(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_tune_list(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_tune_run(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_tune_forget(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_tune_import(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_tune_pin(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_commit(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_fetch(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_abandon(struct session *session, uint32_t id, const void *body, struct packet *packet);
void cmd_weight_unload(struct session *session, uint32_t id, const void *body, struct packet *packet);

#endif
