/* One line a message on standard error, with journald's <N> prefix where stderr is the journal, else with the time.
 * Any thread. */
#pragma once

#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* `level` as in the option log_level; `who` stands before every line ("supervisor", "worker 0", "loader") and must
 * stay valid. */
void log_open(const char *level, const char *who);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a line is about, for those who search the journal by field. */
struct log_subject {
  uint32_t session, uid;
  const char *client;  /* as it calls itself */
  const char *request; /* the command's name; "": none */
  const char *reason;  /* a status by name; "": none */
};
/* Under journald one entry with the fields GEMMD_SESSION, GEMMD_UID, GEMMD_CLIENT, GEMMD_REQUEST and GEMMD_REASON; else
 * a line that ends in "[session=1 uid=2 client=... request=... reason=...]". One thread. */
void log_about(enum log_level level, const struct log_subject *subject, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
