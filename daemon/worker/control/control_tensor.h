/* Memory and events of a client's own; the last row has command 0. */
#pragma once

#include "control_state.h"

extern const struct control_handler control_tensor_handlers[];

/* Memory that a session has open; NULL: the handle stands for none. */
struct control_tensor *control_tensor_find(struct control *control, uint32_t session, uint32_t handle);
/* Gives back the memory of a session that the engine has let go. */
void control_tensor_close_all(struct control *control, struct control_session *session);
