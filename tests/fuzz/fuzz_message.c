/* Control messages as supervisor, worker and client decode them: whatever is taken can be encoded again, and says then
 * what it said before. */
#include "proto/wire/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Larger than every body. */
union any_body {
  uint64_t align;
  uint8_t bytes[1 << 17];
};

static void try_type(const struct message_head *head, struct message_body body, const struct message_type *type) {
  static union any_body first, second;
  static uint8_t again[LIMIT_MESSAGE_BYTES], once_more[LIMIT_MESSAGE_BYTES];
  struct message_head head_again;
  struct message_body body_again;
  struct error error;
  size_t length, length_again;
  if (message_decode_body(body, type, &first, &error) != STATUS_OK)
    return;
  if (message_encode(head, type, &first, again, sizeof again, &length, &error) != STATUS_OK)
    return; /* what was near the limit may be beyond it when it is written otherwise */
  if (message_decode_head(again, length, &head_again, &body_again, &error) != STATUS_OK ||
      message_decode_body(body_again, type, &second, &error) != STATUS_OK ||
      message_encode(head, type, &second, once_more, sizeof once_more, &length_again, &error) != STATUS_OK ||
      length != length_again || memcmp(again, once_more, length) != 0)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct message_head head;
  struct message_body body;
  struct error error;
  size_t count;
  if (message_decode_head(data, size, &head, &body, &error) != STATUS_OK)
    return 0;
  const struct command_info *commands = command_table(&count);
  if (head.kind == MESSAGE_REPLY && head.code != STATUS_OK)
    message_decode_failure(head.code, body, &error);
  for (size_t i = 0; i < count; i++) {
    try_type(&head, body, commands[i].request);
    try_type(&head, body, commands[i].reply);
  }
  try_type(&head, body, &message_weight_progress_type);
  try_type(&head, body, &message_worker_ready_type);
  try_type(&head, body, &message_session_broken_type);
  return 0;
}
