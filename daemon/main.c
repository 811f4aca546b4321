/* gemmd: what the command line asks for. One program is supervisor, worker and loader. */
#include "config.h"
#include "loader/loader.h"
#include "log.h"
#include "supervisor/supervisor.h"
#include "upgrade.h"
#include "worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { CONTROL_FD = 3, EXIT_USAGE = 2 };
enum mode { MODE_SUPERVISOR, MODE_EMBEDDED, MODE_WORKER, MODE_PROVER, MODE_LOADER, MODE_UPGRADE, MODE_CHECK };

struct invocation {
  enum mode mode;
  int device;
  bool standby;            /* a worker: see worker_run */
  const char *config_path; /* NULL: the default one, if it is there */
};

static const char default_config_path[] = "/etc/gemmd/gemmd.conf";
/* Parent and children must be of one build: they speak a protocol that changes without notice. This names the file
 * that runs, though another may stand at its path by now. */
static const char own_program[] = "/proc/self/exe";

static void print_help(void) {
  printf("gemmd %s: keeps quantized weights on the GPUs of this machine and serves their products\n\n"
         "usage: gemmd [--config FILE] [--OPTION VALUE | --OPTION=VALUE ...]\n\n"
         "  --config FILE            read options from FILE (default: %s, if it exists)\n"
         "  --upgrade                execute the running gemmd's program again in place, with its weights and socket\n"
         "  --check                  say what is wrong with the options, or what the backend lacks, and end: 0 where\n"
         "                           nothing is\n"
         "  --help, --version\n\n"
         "Options, in the file as `name = value`:\n",
         GEMMD_RELEASE, default_config_path);
  for (size_t i = 0; i < config_option_count(); i++) {
    struct config_option option;
    config_option_at(i, &option);
    printf("  --%-22s %s (default: %s)\n", option.name, option.summary,
           option.fallback[0] == '\0' ? "empty" : option.fallback);
  }
}

/* A full disk shows here at the latest. */
static int printed(void) {
  if (fflush(stdout) == 0 && !ferror(stdout))
    return EXIT_SUCCESS;
  fprintf(stderr, "gemmd: cannot write to stdout: %s\n", strerror(errno));
  return EXIT_FAILURE;
}

static int usage_error(const char *text) {
  fprintf(stderr, "gemmd: %s\ngemmd --help lists the options\n", text);
  return EXIT_USAGE;
}

/* Words that take no part in the configuration. Returns how many were consumed; 0: it is an option; -1: an error. */
static int read_mode(struct invocation *invocation, int count, char *const *words) {
  if (strcmp(words[0], "--load") == 0 || strcmp(words[0], "--embedded") == 0) {
    invocation->mode = strcmp(words[0], "--load") == 0 ? MODE_LOADER : MODE_EMBEDDED;
    return 1;
  }
  if (strcmp(words[0], "--standby") == 0) {
    invocation->standby = true;
    return 1;
  }
  if (strcmp(words[0], "--upgrade") == 0 || strcmp(words[0], "--check") == 0) {
    invocation->mode = strcmp(words[0], "--check") == 0 ? MODE_CHECK : MODE_UPGRADE;
    return 1;
  }
  if (strcmp(words[0], "--worker") == 0 || strcmp(words[0], "--prove") == 0) {
    char *end;
    if (count < 2)
      return -1;
    invocation->mode = strcmp(words[0], "--prove") == 0 ? MODE_PROVER : MODE_WORKER;
    invocation->device = (int)strtol(words[1], &end, 10);
    return *end == '\0' && invocation->device >= 0 ? 2 : -1;
  }
  if (strcmp(words[0], "--config") == 0) {
    invocation->config_path = words[1];
    return count < 2 ? -1 : 2;
  }
  if (strncmp(words[0], "--config=", 9) == 0) {
    invocation->config_path = words[0] + 9;
    return 1;
  }
  return 0;
}

/* The first pass: what to do and which file to read. False where a word has no value. */
static bool read_invocation(struct invocation *invocation, int count, char *const *words) {
  for (int i = 0; i < count;) {
    int taken = read_mode(invocation, count - i, words + i);
    if (taken < 0)
      return false;
    i += taken != 0 ? taken : strchr(words[i], '=') ? 1 : 2;
  }
  return true;
}

/* One option, as `--name value` or `--name=value`. Returns the words taken, 0 with *error. */
static int read_option(struct config *config, int count, char *const *words, struct error *error) {
  char name[64];
  const char *equals = strchr(words[0], '=');
  size_t length = equals ? (size_t)(equals - words[0]) : strlen(words[0]);
  if (strncmp(words[0], "--", 2) != 0 || length < 3 || length - 2 >= sizeof name) {
    (void)error_set(error, STATUS_INVALID, "\"%.64s\" is no option", words[0]);
    return 0;
  }
  if (!equals && count < 2) {
    (void)error_set(error, STATUS_INVALID, "\"%.64s\" needs a value", words[0]);
    return 0;
  }
  memcpy(name, words[0] + 2, length - 2);
  name[length - 2] = '\0';
  if (config_set(config, name, equals ? equals + 1 : words[1], error) != STATUS_OK)
    return 0;
  return equals ? 1 : 2;
}

/* The second pass: the command line's options, over those of the file. */
static enum status read_options(struct config *config, int count, char *const *words, struct error *error) {
  struct invocation ignored;
  for (int i = 0; i < count;) {
    int taken = read_mode(&ignored, count - i, words + i);
    if (taken == 0)
      taken = read_option(config, count - i, words + i, error);
    if (taken == 0)
      return error->status;
    i += taken;
  }
  return STATUS_OK;
}

static enum status read_config(struct config *config, const struct invocation *invocation, int count,
                               char *const *words, struct error *error) {
  enum status status = STATUS_OK;
  /* gets all on the command line */
  bool child = invocation->mode == MODE_WORKER || invocation->mode == MODE_PROVER || invocation->mode == MODE_LOADER;
  config_defaults(config);
  if (invocation->config_path != NULL)
    status = config_read(config, invocation->config_path, error);
  else if (!child && access(default_config_path, F_OK) == 0)
    status = config_read(config, default_config_path, error);
  return status == STATUS_OK ? read_options(config, count, words, error) : status;
}

static void begin_as_child(void) {
  /* The control socket's end tells a child that its parent is gone; this is for one that is stuck and does not look. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "gemmd"); /* in ps and top; else what own_program ends in */
}

/* Whoever starts gemmd may have closed any of the first three, whose numbers would go to the next file or socket: the
 * log would be written into that, and libuv ends a program that closes one of them. */
static void fill_standard_descriptors(void) {
  int fd;
  do
    fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0)
    close(fd);
}

static int check(const struct config *config) {
  struct error error;
  bool good = supervisor_check(config, &error) == STATUS_OK && worker_check(config, &error) == STATUS_OK;
  return good ? EXIT_SUCCESS : usage_error(error.text);
}

static int run(const struct config *config, const struct invocation *invocation, char **words) {
  char self[4096];
  ssize_t length;
  switch (invocation->mode) {
  case MODE_WORKER:
    begin_as_child();
    return worker_run(config, invocation->device, CONTROL_FD, invocation->standby, words);
  case MODE_PROVER:
    begin_as_child();
    return worker_prove(config, invocation->device);
  case MODE_LOADER:
    begin_as_child();
    return loader_run(config, CONTROL_FD);
  case MODE_UPGRADE:
    return upgrade_run(config);
  case MODE_CHECK:
    return check(config);
  default:
    length = readlink(own_program, self, sizeof self - 1);
    if (length < 0) {
      log_error("%s: %s", own_program, strerror(errno));
      return EXIT_FAILURE;
    }
    self[length] = '\0';
    return supervisor_run(config, self, own_program, words, invocation->mode == MODE_EMBEDDED ? CONTROL_FD : -1);
  }
}

int main(int count, char **words) {
  static struct config config;
  static char who[32];
  struct invocation invocation = {.mode = MODE_SUPERVISOR};
  struct error error;
  fill_standard_descriptors();
  for (int i = 1; i < count; i++) {
    if (strcmp(words[i], "--help") == 0) {
      print_help();
      return printed();
    }
    if (strcmp(words[i], "--version") == 0) {
      printf("gemmd %s\n", GEMMD_RELEASE);
      return printed();
    }
  }
  if (!read_invocation(&invocation, count - 1, words + 1))
    return usage_error("an option needs a value");
  if (read_config(&config, &invocation, count - 1, words + 1, &error) != STATUS_OK)
    return usage_error(error.text);
  if (invocation.mode == MODE_WORKER || invocation.mode == MODE_PROVER)
    snprintf(who, sizeof who, "%s %d", invocation.mode == MODE_WORKER ? "worker" : "prover", invocation.device);
  else
    snprintf(who, sizeof who, "%s", invocation.mode == MODE_LOADER ? "loader" : "supervisor");
  log_open(config.log_level, who);
  signal(SIGPIPE, SIG_IGN);
  return run(&config, &invocation, words);
}
