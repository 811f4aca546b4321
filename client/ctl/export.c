#include "export.h"

#include "metrics_text.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECTIONS_MOST = 16, PATIENCE_S = 10, MEMORY_BYTES = 16384, BACKLOG = 16, MISUSED = -2 };

/* ---- the library, opened at run time: who exports nothing needs neither it nor the TLS that it brings along */

#define FUNCTIONS(X)                                                                                                   \
  X(MHD_start_daemon)                                                                                                  \
  X(MHD_stop_daemon)                                                                                                   \
  X(MHD_create_response_from_buffer)                                                                                   \
  X(MHD_add_response_header)                                                                                           \
  X(MHD_queue_response)                                                                                                \
  X(MHD_destroy_response)

static struct {
#define X(name) __typeof__(&name) name;
  FUNCTIONS(X)
#undef X
} http;

static bool open_library(const struct tool_call *call) {
  void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
  bool all = library != NULL;
#define X(name)                                                                                                        \
  if (all)                                                                                                             \
    all = (*(void **)&http.name = dlsym(library, #name)) != NULL;
  FUNCTIONS(X)
#undef X
  if (!all)
    (void)tool_cannot(call, GEMMD_UNSUPPORTED, "--listen needs libmicrohttpd (Debian: libmicrohttpd12): %s", dlerror());
  return all;
}

/* ---- where */

static int listen_on(const struct sockaddr *address, socklen_t bytes) {
  int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
  if (fd < 0)
    return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, address, bytes) == 0 && listen(fd, BACKLOG) == 0)
    return fd;
  int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

/* A descriptor; -1 with errno; or MISUSED, which has been said. */
static bool is_served(const struct sockaddr_un *address) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool served = fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN ||
                            errno == EPROTOTYPE);
  if (fd >= 0)
    close(fd);
  return served;
}

static int listen_on_path(const struct tool_call *call, const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct stat there;
  if (strlen(path) >= sizeof address.sun_path) {
    (void)tool_fail(call, TOOL_USAGE, "--listen: a socket's path has at most %zu bytes", sizeof address.sun_path - 1);
    return MISUSED;
  }
  strcpy(address.sun_path, path);
  if (lstat(path, &there) == 0 && S_ISSOCK(there.st_mode) && !is_served(&address)) /* of one that is gone */
    unlink(path);
  return listen_on((struct sockaddr *)&address, sizeof address);
}

/* The same for "9400", "127.0.0.1:9400" or "[::1]:9400". */
static int listen_on_port(const struct tool_call *call, const char *where) {
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in6 six = {.sin6_family = AF_INET6};
  const char *colon = strrchr(where, ':'), *digits = colon != NULL ? colon + 1 : where;
  char *end, text[64] = "127.0.0.1";
  unsigned long port = strtoul(digits, &end, 10);
  if (colon != NULL)
    snprintf(text, sizeof text, "%.*s", (int)(colon - where), where);
  size_t length = strlen(text);
  bool is_six = text[0] == '[' && text[length - 1] == ']';
  if (is_six) {
    text[length - 1] = '\0';
    memmove(text, text + 1, length - 1);
  }
  four.sin_port = six.sin6_port = htons((uint16_t)port);
  bool known = is_six ? inet_pton(AF_INET6, text, &six.sin6_addr) == 1 : inet_pton(AF_INET, text, &four.sin_addr) == 1;
  bool loopback = is_six ? IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) : ntohl(four.sin_addr.s_addr) >> 24 == 127;
  if (*digits == '\0' || *end != '\0' || port < 1 || port > 65535 || !known || !loopback) {
    (void)tool_fail(call, TOOL_USAGE, "--listen takes PORT, ADDRESS:PORT of a loopback address, or a path; got \"%s\"",
                    where);
    return MISUSED;
  }
  return is_six ? listen_on((struct sockaddr *)&six, sizeof six) : listen_on((struct sockaddr *)&four, sizeof four);
}

/* ---- an answer */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, char *text, size_t bytes) {
  struct MHD_Response *response = http.MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
  if (response == NULL) {
    free(text);
    return MHD_NO;
  }
  http.MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  enum MHD_Result result = http.MHD_queue_response(connection, code, response);
  http.MHD_destroy_response(response);
  return result;
}

static enum MHD_Result answer_sentence(struct MHD_Connection *connection, unsigned code, const char *sentence) {
  char *copy = strdup(sentence);
  return copy == NULL ? MHD_NO : answer(connection, code, copy, strlen(copy));
}

/* Each scrape is a session: a gemmd that is gone is noticed, and one that is there again as well. */
static enum MHD_Result answer_metrics(struct MHD_Connection *connection, const struct tool_call *call) {
  gemmd_options options = {
      .arena_bytes = CTL_ARENA_BYTES, .entries = 1, .reconnect_ms = UINT32_MAX, .name = "gemmctl metrics"};
  gemmd_session *session = NULL;
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  if (out == NULL)
    return MHD_NO;
  int status = gemmd_connect(&session, call->socket, &options);
  if (status == GEMMD_OK)
    status = metrics_text_write(session, out);
  if (fclose(out) != 0)
    status = GEMMD_NOMEM;
  enum MHD_Result result;
  if (status == GEMMD_OK) {
    result = answer(connection, MHD_HTTP_OK, text, bytes);
  } else {
    result = answer_sentence(connection, MHD_HTTP_SERVICE_UNAVAILABLE, gemmd_error(session));
    free(text);
  }
  gemmd_disconnect(session);
  return result;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **state) {
  static int seen;
  if (*state == NULL) { /* the head alone; a body would follow */
    *state = &seen;
    return MHD_YES;
  }
  if (*upload_bytes != 0) {
    *upload_bytes = 0;
    return MHD_YES;
  }
  if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
    return answer_sentence(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is served\n");
  if (strcmp(url, "/metrics") != 0)
    return answer_sentence(connection, MHD_HTTP_NOT_FOUND, "gemmd's numbers are at /metrics\n");
  return answer_metrics(connection, user);
}

/* ---- serving */

enum tool_exit export_run(struct tool_call *call, const char *where) {
  bool is_path = strchr(where, '/') != NULL;
  sigset_t ends;
  int number;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, NULL);
  if (!open_library(call))
    return TOOL_REFUSED;
  int fd = is_path ? listen_on_path(call, where) : listen_on_port(call, where);
  if (fd == MISUSED)
    return TOOL_USAGE;
  if (fd < 0)
    return tool_cannot(call, GEMMD_SYSTEM, "cannot listen on %s: %s", where, strerror(errno));
  struct MHD_Daemon *server = http.MHD_start_daemon(
      MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, NULL, NULL, on_request, call, MHD_OPTION_LISTEN_SOCKET, fd,
      MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MOST, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)PATIENCE_S,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_BYTES, MHD_OPTION_END);
  if (server == NULL) {
    close(fd);
    return tool_cannot(call, GEMMD_SYSTEM, "the HTTP server cannot be started");
  }
  sigwait(&ends, &number);
  http.MHD_stop_daemon(server);
  if (is_path)
    unlink(where);
  return TOOL_OK;
}
