/* metrics: gemmd's numbers, once or by HTTP. */
#include "ctl.h"
#include "export.h"
#include "metrics_text.h"

static enum tool_exit write_metrics(struct tool_call *call, gemmd_session *session) {
  int status = metrics_text_write(session, call->out);
  return status == GEMMD_OK ? TOOL_OK : tool_refused(call, session, status);
}

static enum tool_exit run_metrics(struct tool_call *call) {
  const char *listen = tool_value(call, "listen");
  return listen != NULL ? export_run(call, listen) : ctl_in_session(call, write_metrics);
}

static const struct tool_option metrics_options[] = {
    {"listen", "WHERE", "serve them by HTTP at /metrics: PORT, a loopback ADDRESS:PORT, or the path of a Unix socket",
     false},
    {0},
};

const struct tool_command ctl_metrics = {
    .name = "metrics",
    .arguments = "",
    .summary = "The daemon's numbers in Prometheus' text format, with or without --json.",
    .options = metrics_options,
    .example = "gemmctl metrics >/var/lib/prometheus/node-exporter/gemmd.prom",
    .keys = "  none: the format is Prometheus' own",
    .run = run_metrics,
};
