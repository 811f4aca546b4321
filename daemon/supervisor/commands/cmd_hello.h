/* The first request of a session. */
#ifndef SUPERVISOR_COMMANDS_CMD_HELLO_H
#define SUPERVISOR_COMMANDS_CMD_HELLO_H

struct supervisor;

/* Every worker has been ready, or has failed: answers the sessions that said hello before. */
void cmd_hello_answer_all(struct supervisor *supervisor);

#endif
