/* The real gemmd, for tests: started in a temporary folder of its own, with its own socket and configuration, and
 * stopped so that a wrong exit status or a sanitizer's report in its log fails the test. Failures of these functions
 * end the running cmocka test with a message. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct daemon {
  char folder[64]; /* temporary; goes with daemon_remove */
  char socket[96];
  pid_t pid; /* of the supervisor; 0: not running */
};

/* Makes folder and configuration. `options` are further lines of gemmd.conf, "" for none, and say otherwise where they
 * name what is there already. The backend is $GEMMD_TEST_BACKEND, else cpu, and has one device. */
void daemon_make(struct daemon *daemon, const char *options);
/* Whether that backend is cuda. */
bool daemon_on_cuda(void);
/* Starts gemmd ($GEMMD_BUILD/gemmd, else build/gemmd) and waits until it says that it is ready. */
void daemon_start(struct daemon *daemon);
/* Starts one that must give up. Returns its exit status; its sentences are in the log. */
int daemon_fail_to_start(const struct daemon *daemon);
/* SIGTERM; it must exit with 0. */
void daemon_stop(struct daemon *daemon);
/* SIGKILL to the supervisor alone, and waits until its workers are gone too. */
void daemon_kill(struct daemon *daemon);
/* gemmd --upgrade: a new program in place, the process stays. */
void daemon_upgrade(const struct daemon *daemon);
/* Removes the folder, after a look at the log. */
void daemon_remove(struct daemon *daemon);
/* daemon_stop, and then daemon_remove. */
void daemon_end(struct daemon *daemon);

/* Path of a file in the folder; the result lasts for eight calls. */
const char *daemon_path(const struct daemon *daemon, const char *name);
/* How many lines of the log contain `text`. */
int daemon_log_count(const struct daemon *daemon, const char *text);

/* Client processes: `run` is called in each, and what it returns (0: all right) is the exit status; it reports on
 * stderr. Memory from clients_share is seen by all of them. */
enum { CLIENTS_MOST = 16 };
struct clients {
  pid_t pids[CLIENTS_MOST];
  int count;
};
void *clients_share(size_t bytes);
void clients_start(struct clients *clients, int count, int (*run)(int index, void *user), void *user);
/* Waits for all; each must have returned 0. */
void clients_wait(struct clients *clients);
/* Starts them and waits for all. */
void clients_run(int count, int (*run)(int index, void *user), void *user);
