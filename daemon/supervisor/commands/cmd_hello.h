/* The first request of a session. */
#pragma once

struct supervisor;

/* Every worker has been ready, or has failed: answers the sessions that said hello before. */
void cmd_hello_answer_all(struct supervisor *supervisor);
