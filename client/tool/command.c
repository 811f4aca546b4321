#include "command.h"

#include "print.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const struct tool_option common_options[] = {
    {"socket", "PATH", "gemmd's socket; else $GEMMD_SOCKET, else /run/gemmd/gemmd.sock", false},
    {"json", NULL, "an object for programs in place of text; numbers are exact", false},
    {"help", NULL, "this text", false},
    {0},
};
enum common_option { COMMON_SOCKET = 1000, COMMON_JSON, COMMON_HELP };

static const char exit_codes[] = "Exit status:\n"
                                 "  0  done\n"
                                 "  1  refused; the sentence on stderr names the status\n"
                                 "  2  the command line is wrong; nothing was asked of gemmd\n"
                                 "  3  no connection to gemmd, or it was lost\n"
                                 "  4  refused for now (BUSY, TIMEOUT, DEVICE_LOST, SHUTTING_DOWN): try again\n";

/* ---- help */

static void help_options(const struct tool_option *options) {
  for (const struct tool_option *option = options; option != NULL && option->name != NULL; option++) {
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", option->name, option->argument != NULL ? " " : "",
             option->argument != NULL ? option->argument : "");
    printf("  %-26s %s%s\n", left, option->summary, option->required ? " (required)" : "");
  }
}

/* `left`, and `right` in the column beside it, or below where there is no room. */
static void help_row(FILE *file, const char *left, const char *right) {
  enum { COLUMN = 29 };
  int at = fprintf(file, "  %s", left);
  fprintf(file, "%s%*s", at < COLUMN ? "" : "\n", at < COLUMN ? COLUMN - at : COLUMN, "");
  for (const char *end; (end = strchr(right, '\n')) != NULL; right = end + 1)
    fprintf(file, "%.*s\n%*s", (int)(end - right), right, COLUMN, "");
  fprintf(file, "%s\n", right);
}

static void help_tool(const struct tool *tool, FILE *file) {
  fprintf(file, "Usage: %s [--socket PATH] [--json] COMMAND ...\n%s\n\nCommands:\n", tool->name, tool->summary);
  for (const struct tool_command *const *command = tool->commands; *command != NULL; command++) {
    char left[128];
    snprintf(left, sizeof left, "%s %s", (*command)->name, (*command)->arguments);
    help_row(file, left, (*command)->summary);
  }
  fprintf(file, "\n%s COMMAND --help tells more.\n\n%s", tool->name, exit_codes);
}

static void help_command(const struct tool *tool, const struct tool_command *command) {
  printf("Usage: %s %s %s%s[OPTIONS]\n%s\n\nOptions:\n", tool->name, command->name, command->arguments,
         *command->arguments != '\0' ? " " : "", command->summary);
  help_options(command->options);
  help_options(common_options);
  printf("\nExample:\n  %s\n\nWith --json, one object:\n%s\n"
         "  where it was refused: error {status, text}\n\n%s",
         command->example, command->keys, exit_codes);
}

/* ---- errors */

enum tool_exit tool_fail(const struct tool_call *call, enum tool_exit code, const char *format, ...) {
  fprintf(stderr, "%s: ", call->tool->name);
  if (call->command != NULL)
    fprintf(stderr, "%s: ", call->command->name);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  return code;
}

enum tool_exit tool_random(const struct tool_call *call, uint64_t *out) {
  if (getrandom(out, sizeof *out, 0) != sizeof *out)
    return tool_cannot(call, GEMMD_SYSTEM, "no random number: %s", strerror(errno));
  return TOOL_OK;
}

static enum tool_exit exit_of(int status) {
  if (status == GEMMD_OK)
    return TOOL_OK;
  if (status == GEMMD_DISCONNECTED)
    return TOOL_UNREACHABLE;
  return gemmd_status_retryable(status) ? TOOL_RETRY : TOOL_REFUSED;
}

enum tool_exit tool_refuse(const struct tool_call *call, const char *text, int status) {
  const char *name = gemmd_status_name(status);
  if (*text == '\0')
    text = "no reason given";
  tool_fail(call, TOOL_REFUSED, "%s (%s)", text, name);
  if (call->json)
    print_json(call->out, json_pack("{s:{s:s, s:o}}", "error", "status", name, "text", print_json_text(text)));
  return exit_of(status);
}

enum tool_exit tool_cannot(const struct tool_call *call, int status, const char *format, ...) {
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  enum tool_exit code = tool_refuse(call, length >= 0 ? text : "out of memory", length >= 0 ? status : GEMMD_NOMEM);
  if (length >= 0)
    free(text);
  return code;
}

enum tool_exit tool_refused(const struct tool_call *call, const gemmd_session *session, int status) {
  return tool_refuse(call, session != NULL ? gemmd_error(session) : "", status);
}

enum tool_exit tool_connect(const struct tool_call *call, const gemmd_options *options, gemmd_session **session) {
  int status = gemmd_connect(session, call->socket, options);
  if (status == GEMMD_OK)
    return TOOL_OK;
  enum tool_exit code = tool_refuse(call, *session != NULL ? gemmd_error(*session) : "out of memory", status);
  if (status == GEMMD_DISCONNECTED)
    tool_fail(call, code, "is gemmd running there? --socket PATH or $GEMMD_SOCKET says where else");
  if (status == GEMMD_PERMISSION)
    tool_fail(call, code, "%s",
              "members of the group that may use gemmd get in, of a service's that is gemmd; to be one counts from the "
              "next login on");
  gemmd_disconnect(*session);
  *session = NULL;
  return code == TOOL_RETRY ? TOOL_RETRY : TOOL_UNREACHABLE;
}

/* ---- values */

const char *tool_value(const struct tool_call *call, const char *option) {
  const struct tool_option *options = call->command->options;
  for (int i = 0; options != NULL && options[i].name != NULL; i++) {
    if (strcmp(options[i].name, option) == 0)
      return call->values[i];
  }
  return NULL;
}

unsigned tool_values(const struct tool_call *call, const char *option, const char **out, unsigned room) {
  unsigned count = 0;
  for (int i = 0; i < call->given_count && count < room; i++)
    if (strcmp(call->command->options[call->given[i].option].name, option) == 0)
      out[count++] = call->given[i].value;
  return count;
}

bool tool_number(const struct tool_call *call, const char *option, double low, double high, double fallback,
                 double *out) {
  *out = fallback;
  const char *text = tool_value(call, option);
  if (text == NULL)
    return true;
  char *end;
  *out = strtod(text, &end);
  /* The comparison is false for NaN too. */
  if (end != text && *end == '\0' && *out >= low && *out <= high)
    return true;
  tool_fail(call, TOOL_USAGE, "--%s must be %g..%g, got %s", option, low, high, *text != '\0' ? text : "nothing");
  return false;
}

bool tool_integer(const struct tool_call *call, const char *option, int64_t low, int64_t high, int64_t fallback,
                  int64_t *out) {
  *out = fallback;
  const char *text = tool_value(call, option);
  if (text == NULL)
    return true;
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  if (errno == 0 && end != text && *end == '\0' && *out >= low && *out <= high)
    return true;
  tool_fail(call, TOOL_USAGE, "--%s must be %lld..%lld, got %s", option, (long long)low, (long long)high,
            *text != '\0' ? text : "nothing");
  return false;
}

bool tool_word(const struct tool_call *call, const char *option, const struct word *words, int fallback, int *out) {
  *out = fallback;
  const char *text = tool_value(call, option);
  if (text == NULL || word_number(words, text, out))
    return true;
  char list[1024];
  word_list(words, list, sizeof list);
  tool_fail(call, TOOL_USAGE, "--%s must be %s, got %s", option, list, *text != '\0' ? text : "nothing");
  return false;
}

/* ---- parsing */

/* Appends rows of a table to getopt's; option i gets the value base + i. */
static int add_options(struct option *list, int count, const struct tool_option *options, int base) {
  for (int i = 0; options != NULL && options[i].name != NULL; i++)
    list[count++] = (struct option){.name = options[i].name,
                                    .has_arg = options[i].argument != NULL ? required_argument : no_argument,
                                    .val = base + i};
  return count;
}

/* What getopt keeps of an option that it does not know: the letter, of which others may stand behind in the same
 * argument, so that optind is not yet past it, and which is below 0 where it is not ASCII; of one with a name, 0 or
 * its value in the table. */
static bool is_letter(int kept) {
  return kept < 0 || (kept > TOOL_OPTIONS_MAX && kept < COMMON_SOCKET);
}

static void take_option(struct tool_call *call, int option, const char *value) {
  call->values[option] = value;
  call->given[call->given_count++] = (struct tool_given){.option = option, .value = value};
}

/* Reads options into *call until the arguments end (or the first that is no option, with `command` NULL). */
static enum tool_exit parse(struct tool_call *call, const struct tool_command *command, int argc, char **argv,
                            bool *help) {
  struct option list[TOOL_OPTIONS_MAX + sizeof common_options / sizeof *common_options] = {0};
  int count = add_options(list, 0, common_options, COMMON_SOCKET);
  if (command != NULL)
    add_options(list, count, command->options, 0);
  opterr = 0;
  optind = 0; /* starts anew, also for the second list of options */
  int option;
  while ((option = getopt_long(argc, argv, command == NULL ? "+:h" : ":h", list, NULL)) != -1) {
    if (option == COMMON_SOCKET)
      call->socket = optarg;
    else if (option == COMMON_JSON)
      call->json = true;
    else if (option == COMMON_HELP || option == 'h')
      *help = true;
    else if (option == ':')
      return tool_fail(call, TOOL_USAGE, "%s needs a value", argv[optind - 1]);
    else if (option == '?' && is_letter(optopt))
      return tool_fail(call, TOOL_USAGE, "unknown option -%c", optopt > 0 ? optopt : '?');
    else if (option == '?')
      return tool_fail(call, TOOL_USAGE, "unknown option %s", argv[optind - 1]);
    else if (call->given_count == TOOL_GIVEN_MAX)
      return tool_fail(call, TOOL_USAGE, "more than %d options", TOOL_GIVEN_MAX);
    else
      take_option(call, option, optarg != NULL ? optarg : command->options[option].name);
  }
  call->count = argc - optind;
  call->arguments = argv + optind;
  return TOOL_OK;
}

static enum tool_exit check_arguments(const struct tool_call *call) {
  const struct tool_command *command = call->command;
  if (call->count < command->least)
    return tool_fail(call, TOOL_USAGE, "%s is missing; usage: %s %s %s", command->arguments, call->tool->name,
                     command->name, command->arguments);
  if (call->count > command->most)
    return tool_fail(call, TOOL_USAGE, "one argument too many: %s", call->arguments[command->most]);
  for (int i = 0; command->options != NULL && command->options[i].name != NULL; i++) {
    if (command->options[i].required && call->values[i] == NULL)
      return tool_fail(call, TOOL_USAGE, "--%s %s is missing", command->options[i].name, command->options[i].argument);
  }
  return TOOL_OK;
}

static const struct tool_command *find_command(const struct tool *tool, const char *name) {
  for (const struct tool_command *const *command = tool->commands; *command != NULL; command++)
    if (strcmp((*command)->name, name) == 0)
      return *command;
  return NULL;
}

/* The command and the arguments behind its name; those start with one that getopt takes for the program's name. */
static enum tool_exit choose(struct tool_call *call, int argc, char **argv, bool *help) {
  const struct tool *tool = call->tool;
  bool is_option = argc > 1 && argv[1][0] == '-' && strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0;
  if (tool->first_is_default && is_option) {
    call->command = tool->commands[0];
    return parse(call, call->command, argc, argv, help);
  }
  enum tool_exit code = parse(call, NULL, argc, argv, help);
  if (code != TOOL_OK || *help)
    return code;
  if (call->count == 0) {
    help_tool(tool, stderr);
    return TOOL_USAGE;
  }
  const struct tool_command *command = find_command(tool, call->arguments[0]);
  if (command == NULL)
    return tool_fail(call, TOOL_USAGE, "unknown command %s; %s --help lists them", call->arguments[0], tool->name);
  call->command = command;
  return parse(call, command, call->count, call->arguments, help);
}

/* The numbers of those that are closed would go to the next socket or file, and what is printed into it: gemmd would
 * get it for a message. What takes their place fails when it is used, as they would. */
static void fill_standard_descriptors(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0)
      (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* the lowest number that is free */
}

int tool_main(const struct tool *tool, int argc, char **argv) {
  struct tool_call call = {.tool = tool, .out = stdout};
  bool help = false;
  fill_standard_descriptors();
  enum tool_exit code = choose(&call, argc, argv, &help);
  if (code == TOOL_OK && help) {
    if (call.command != NULL)
      help_command(tool, call.command);
    else
      help_tool(tool, stdout);
  } else if (code == TOOL_OK) {
    code = check_arguments(&call);
    if (code == TOOL_OK)
      code = call.command->run(&call);
  }
  /* A full disk shows here at the latest; an object about it would find no room either. */
  if (fflush(stdout) != 0 && code == TOOL_OK)
    code = tool_fail(&call, TOOL_REFUSED, "cannot write to stdout: %s (%s)", strerror(errno),
                     gemmd_status_name(GEMMD_SYSTEM));
  return (int)code;
}
