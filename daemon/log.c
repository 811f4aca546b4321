#include "log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static const int level_priorities[] = {3, 4, 6, 7}; /* as in syslog(3) */

/* Set once by log_open before other threads start. */
static enum log_level log_most = LOG_LEVEL_INFO;
static const char *log_who = "gemmd";
static bool log_journal;

/* systemd names the device and inode of the stream that it attached; a redirected stderr is another one. */
static bool stderr_is_journal(void) {
  const char *stream = getenv("JOURNAL_STREAM");
  unsigned long long device, inode;
  struct stat stat;
  return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &stat) == 0 &&
         stat.st_dev == device && stat.st_ino == inode;
}

void log_open(const char *level, const char *who) {
  for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++)
    if (strcmp(level, level_names[i]) == 0)
      log_most = (enum log_level)i;
  log_who = who;
  log_journal = stderr_is_journal();
}

static int write_prefix(char *line, size_t bytes, enum log_level level) {
  if (log_journal)
    return snprintf(line, bytes, "<%d>%s: ", level_priorities[level], log_who);
  struct timespec now;
  struct tm parts;
  clock_gettime(CLOCK_REALTIME, &now);
  localtime_r(&now.tv_sec, &parts);
  char stamp[32];
  strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &parts);
  return snprintf(line, bytes, "%s.%03ld %s %s: ", stamp, now.tv_nsec / 1000000, level_names[level], log_who);
}

/* Names come from clients: no line breaks, no terminal sequences. */
static void make_harmless(char *line, size_t length) {
  unsigned char *at = (unsigned char *)line;
  for (size_t i = 0; i < length; i++)
    if (at[i] < 0x20 || at[i] == 0x7f)
      at[i] = '?';
    else if (i + 1 < length && at[i] == 0xc2 && at[i + 1] >= 0x80 && at[i + 1] < 0xa0) /* 0x80..0x9f in UTF-8 */
      at[i] = at[i + 1] = '?';
}

void log_line(enum log_level level, const char *format, ...) {
  if (level > log_most)
    return;
  char line[LINE_BYTES];
  size_t length = (size_t)write_prefix(line, sizeof line / 2, level);
  va_list arguments;
  va_start(arguments, format);
  int text = vsnprintf(line + length, sizeof line - length - 1, format, arguments);
  va_end(arguments);
  if (text > 0)
    length += (size_t)text < sizeof line - length - 1 ? (size_t)text : sizeof line - length - 2;
  make_harmless(line, length);
  line[length++] = '\n';
  /* One write a line, so that the lines of several processes do not mix. */
  if (write(STDERR_FILENO, line, length) < 0)
    return;
}

/* ---- with fields */

/* journald's own socket, which takes fields; -1 where it is not there. */
static int journal(void) {
  static int fd = -2;
  const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
  if (fd != -2)
    return fd;
  fd = log_journal ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
  if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static bool send_entry(enum log_level level, const struct log_subject *subject, const char *text) {
  char entry[2 * LINE_BYTES], client[64];
  if (journal() < 0)
    return false;
  snprintf(client, sizeof client, "%s", subject->client);
  make_harmless(client, strlen(client));
  int length = snprintf(entry, sizeof entry,
                        "PRIORITY=%d\nSYSLOG_IDENTIFIER=gemmd\nMESSAGE=%s: %s\nGEMMD_SESSION=%u\nGEMMD_UID=%u\n"
                        "GEMMD_CLIENT=%s\nGEMMD_REQUEST=%s\nGEMMD_REASON=%s\n",
                        level_priorities[level], log_who, text, subject->session, subject->uid, client,
                        subject->request, subject->reason);
  return length > 0 && (size_t)length < sizeof entry && send(journal(), entry, (size_t)length, MSG_NOSIGNAL) >= 0;
}

void log_about(enum log_level level, const struct log_subject *subject, const char *format, ...) {
  char text[LINE_BYTES / 2];
  va_list arguments;
  if (level > log_most)
    return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  make_harmless(text, strlen(text));
  if (!send_entry(level, subject, text))
    log_line(level, "%s [session=%u uid=%u client=%s request=%s reason=%s]", text, subject->session, subject->uid,
             subject->client, subject->request, subject->reason);
}
