/* gemmctl: the command line of gemmd. */
#include "ctl.h"

static const struct tool_command *const commands[] = {
#define ROW(name) &ctl_##name,
    CTL_COMMANDS(ROW)
#undef ROW
        NULL,
};

int main(int argc, char **argv) {
  static const struct tool gemmctl = {
      .name = "gemmctl", .summary = "Looks at gemmd, and loads, uses and drops its weights.", .commands = commands};
  return tool_main(&gemmctl, argc, argv);
}
