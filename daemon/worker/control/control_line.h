/* Commands one after the other, in order of arrival. */
#pragma once

#include "control_state.h"

void control_line_append(struct control *control, struct control_task *task);
/* The engine has sent the task's message back. */
void control_line_answered(struct control *control, struct control_task *task);
/* Goes on with the line; while closing, forgets what has not begun. */
void control_line_advance(struct control *control);
/* The device is lost: the loop ends at once. */
void control_line_lost(struct control *control, const struct error *error);
