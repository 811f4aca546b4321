/* Control messages: C structs <-> msgpack. No I/O; nothing here allocates what outlives a call.
 *
 * On the wire a message is one SEQPACKET record: the msgpack array [kind, id, code, body].
 *   kind  0 request, 1 reply, 2 event
 *   id    chosen by who asks; comes back in the reply; 0 in events
 *   code  command (request), status (reply), event number (event)
 *   body  a map: see messages.def. A reply whose status is not OK carries `failure`. */
#ifndef PROTO_WIRE_MESSAGE_H
#define PROTO_WIRE_MESSAGE_H

#include "../limits.h"
#include "../status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_VERSION_MIN 1u
#define PROTOCOL_VERSION_MAX 1u

enum message_kind { MESSAGE_REQUEST = 0, MESSAGE_REPLY = 1, MESSAGE_EVENT = 2 };

/* How a loader makes codes from real numbers. The numbers travel. */
enum message_method {
  METHOD_DEFAULT = 0, /* as stored where the file is quantized; else ABSMAX (INT8, FP8), LEAST_SQUARES (INT2) */
  METHOD_ABSMAX = 1,
  METHOD_LEAST_SQUARES = 2, /* INT2: codes and scale of each group that minimize the squared error */
  METHOD_TERNARY = 3,       /* INT2: {-1, 0, 1} times the mean magnitude */
};

/* Who may see and open a weight, besides its owner and admins. */
enum message_mode {
  MODE_DEFAULT = 0, /* what the name has already; else ALL where an admin loads it, PRIVATE where not */
  MODE_PRIVATE = 1, /* nobody */
  MODE_ALL = 2,     /* every user; only admins may ask for it */
};

/* What a handle of CUDA's IPC stands for. The numbers travel. */
enum message_ipc { MESSAGE_IPC_MEMORY = 1, MESSAGE_IPC_EVENT = 2 };

enum message_placement { PLACEMENT_SINGLE = 0, PLACEMENT_REPLICAS = 1, PLACEMENT_SPLIT = 2 };

/* How a body is laid out, in memory and on the wire; made from messages.def. */
struct message_type;

/* struct message_<name> and message_<name>_type for every row of messages.def. */
/* clang-format off */
#define MESSAGE(name) struct message_##name {
#define END(name) }; extern const struct message_type message_##name##_type;
#define U32(field, presence) uint32_t field;
#define U64(field, presence) uint64_t field;
#define I64(field, presence) int64_t field;
#define BOOL(field, presence) bool field;
#define STR(field, bytes, presence) char field[bytes];
#define BIN(field, bytes, presence) uint8_t field[bytes];
#define LIST(field, name, most, presence) uint32_t field##_count; struct message_##name field[most];
#include "messages.def"
/* clang-format on */

enum command {
#define COMMAND(number, name, permission, state, request, reply, fds, since, summary) COMMAND_##name = number,
#include "commands.def"
};
enum event {
#define EVENT(number, name, body) EVENT_##name = number,
#include "commands.def"
};

enum permission { PERMISSION_USER, PERMISSION_ADMIN, PERMISSION_INTERNAL };
enum session_state { STATE_NEW = 1, STATE_OPEN = 2, STATE_ARENA = 4 }; /* a session with an arena is also open */

struct command_info {
  uint32_t number;
  const char *name, *summary;
  enum permission permission;
  uint32_t states; /* mask of enum session_state */
  const struct message_type *request, *reply;
  uint32_t fds, since;
};

/* NULL where the number is no command. */
const struct command_info *command_find(uint32_t number);
/* The most descriptors that its request may bring; info->fds is the least. */
uint32_t command_fds_most(const struct command_info *info);
/* All rows, in order of number. */
const struct command_info *command_table(size_t *count);

struct message_head {
  enum message_kind kind;
  uint32_t id;
  uint32_t code;
};

/* An undecoded body: a slice of the caller's buffer. */
struct message_body {
  const uint8_t *bytes;
  size_t length;
};

/* Writes one message into buffer; *length is what it takes. `body` points to the struct of `type`. TOO_LARGE where
 * `capacity` does not hold it, INVALID for text that is not terminated. */
MUST_CHECK enum status message_encode(const struct message_head *head, const struct message_type *type,
                                      const void *body, void *buffer, size_t capacity, size_t *length,
                                      struct error *error);

/* Reads the envelope. PROTOCOL with the reason for anything but one whole well-formed message: too long, too deep,
 * trailing bytes, wrong types, a body that is not a map. */
MUST_CHECK enum status message_decode_head(const void *buffer, size_t length, struct message_head *head,
                                           struct message_body *body, struct error *error);

/* Reads a body into the struct of `type`, which is zeroed first. PROTOCOL for a missing, repeated, mistyped or
 * oversized field; unknown keys are skipped. */
MUST_CHECK enum status message_decode_body(struct message_body body, const struct message_type *type, void *out,
                                           struct error *error);

/* A reply that carries an error. */
MUST_CHECK enum status message_encode_failure(uint32_t id, const struct error *cause, uint32_t retry_ms, void *buffer,
                                              size_t capacity, size_t *length, struct error *error);
/* The error that a failed reply carries: head.code is the status. */
void message_decode_failure(uint32_t code, struct message_body body, struct error *out);

#endif
