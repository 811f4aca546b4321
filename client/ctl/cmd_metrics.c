/* metrics: gemmd's numbers, once or by HTTP. */
#include "ctl.h"
#include "metrics_text.h"
#include "model/export.h"

enum tool_exit ctl_metrics(struct tool_call *call) {
  gemmd_session *session;
  const char *listen = tool_value(call, "listen");
  if (listen != NULL)
    return export_run(call, listen);
  enum tool_exit code = ctl_connect(call, &session);
  if (code != TOOL_OK)
    return code;
  int status = metrics_text_write(session, call->out);
  if (status != GEMMD_OK)
    code = tool_refused(call, session, status);
  gemmd_disconnect(session);
  return code;
}
