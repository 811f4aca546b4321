/* An HTTP server for scrapers: GET /metrics asks gemmd and answers with its numbers. A process of its own, a client
 * like any other, so that who can reach its port can reach nothing of gemmd's. */
#pragma once

#include "ctl.h"

/* `where`: PORT or ADDRESS:PORT of a loopback address, or the path of a Unix socket to be made. Returns after SIGTERM
 * or SIGINT. */
enum tool_exit export_run(struct tool_call *call, const char *where);
