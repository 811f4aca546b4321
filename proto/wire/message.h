/* Control messages: C structs <-> msgpack. No I/O; nothing here allocates what outlives a call.
 *
 * On the wire a message is one SEQPACKET record: the msgpack array [kind, id, code, body].
 *   kind  0 request, 1 reply, 2 event
 *   id    chosen by who asks; comes back in the reply; 0 in events
 *   code  command (request), status (reply), event number (event)
 *   body  a map: see messages.def. A reply whose status is not OK carries `failure`. */
#pragma once

#include "../status.h"
#include "command.h"
#include "message_types.h"

#define PROTOCOL_VERSION_MIN 1u
#define PROTOCOL_VERSION_MAX 1u

#define MESSAGE_HANDLE_LEAST 65536u /* of a weight; what is below is a client's to use for one that it has none of */

enum message_kind { MESSAGE_REQUEST = 0, MESSAGE_REPLY = 1, MESSAGE_EVENT = 2 };

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
