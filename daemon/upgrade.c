#include "upgrade.h"

#include "../proto/wire/message.h"
#include "log.h"
#include "transport.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_MS = 60000 }; /* the successor says hello when its workers are ready */

static enum status connect_to(const char *path, int *out, struct error *error) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path)
    return error_set(error, STATUS_INVALID, "%.160s is longer than a socket's path may be", path);
  memcpy(address.sun_path, path, strlen(path) + 1);
  *out = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (*out < 0 || connect(*out, (struct sockaddr *)&address, sizeof address) != 0)
    return error_set(error, STATUS_DISCONNECTED, "cannot connect to %.160s: %s", path, strerror(errno));
  return STATUS_OK;
}

static enum status receive(int socket, struct packet *packet, struct error *error) {
  struct pollfd readable = {.fd = socket, .events = POLLIN};
  int ready;
  do
    ready = poll(&readable, 1, ANSWER_MS);
  while (ready < 0 && errno == EINTR);
  return ready == 1 ? transport_receive(socket, packet, error)
                    : error_set(error, STATUS_TIMEOUT, "no answer within %d s", ANSWER_MS / 1000);
}

static enum status ask(int socket, enum command command, const void *request, struct error *error) {
  static struct packet packet;
  const struct message_head head = {.kind = MESSAGE_REQUEST, .id = 1, .code = command};
  struct message_head answer;
  struct message_body body;
  uint8_t bytes[512];
  size_t length;
  enum status status =
      message_encode(&head, command_find(command)->request, request, bytes, sizeof bytes, &length, error);
  if (status == STATUS_OK)
    status = transport_send(socket, bytes, length, NULL, 0, error);
  if (status == STATUS_OK)
    status = receive(socket, &packet, error);
  if (status != STATUS_OK)
    return status;
  packet_close(&packet);
  status = message_decode_head(packet.bytes, packet.length, &answer, &body, error);
  if (status == STATUS_OK && answer.code != STATUS_OK) {
    message_decode_failure(answer.code, body, error);
    status = error->status;
  }
  return status;
}

static enum status greet(const char *path, int *out, struct error *error) {
  const struct message_hello_request hello = {
      .version_min = PROTOCOL_VERSION_MIN, .version_max = PROTOCOL_VERSION_MAX, .client = "gemmd --upgrade"};
  enum status status = connect_to(path, out, error);
  return status == STATUS_OK ? ask(*out, COMMAND_hello, &hello, error) : status;
}

static enum status await_end(int socket, struct error *error) {
  static struct packet packet;
  enum status status;
  while ((status = receive(socket, &packet, error)) == STATUS_OK)
    packet_close(&packet);
  return status == STATUS_DISCONNECTED ? STATUS_OK : status;
}

static enum status upgrade(const char *path, int sockets[2], struct error *error) {
  const struct message_empty nothing = {.reserved = 0};
  enum status status = greet(path, &sockets[0], error);
  if (status == STATUS_OK)
    status = ask(sockets[0], COMMAND_upgrade, &nothing, error);
  if (status == STATUS_OK)
    status = await_end(sockets[0], error);
  /* The socket has been listening all the time; the answer comes from the successor. */
  return status == STATUS_OK ? greet(path, &sockets[1], error) : status;
}

int upgrade_run(const struct config *config) {
  int sockets[2] = {-1, -1};
  struct error error;
  enum status status = upgrade(config->socket, sockets, &error);
  for (int i = 0; i < 2; i++)
    if (sockets[i] >= 0)
      close(sockets[i]);
  if (status == STATUS_OK)
    return EXIT_SUCCESS;
  log_error("upgrade: %s", error.text);
  return EXIT_FAILURE;
}
