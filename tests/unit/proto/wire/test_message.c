#include "proto/wire/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static uint8_t buffer[LIMIT_MESSAGE_BYTES + 64];

static size_t encode(const struct message_type *type, const void *body) {
  struct message_head head = {MESSAGE_REQUEST, 7, 3};
  struct error error;
  size_t length = 0;
  assert_int_equal(message_encode(&head, type, body, buffer, sizeof buffer, &length, &error), STATUS_OK);
  return length;
}

static enum status decode(const void *bytes, size_t length, const struct message_type *type, void *out,
                          struct error *error) {
  struct message_head head;
  struct message_body body;
  memset(error, 0x5a, sizeof *error);
  enum status status = message_decode_head(bytes, length, &head, &body, error);
  return status == STATUS_OK ? message_decode_body(body, type, out, error) : status;
}

static void expect_protocol(const void *bytes, size_t length, const struct message_type *type, void *out,
                            const char *text) {
  struct error error;
  assert_int_equal(decode(bytes, length, type, out, &error), STATUS_PROTOCOL);
  assert_string_equal(error.text, text);
}

/* ---- what is encoded comes back */

static void the_envelope(void **state) {
  struct message_ping ping = {UINT64_MAX};
  struct message_head head = {MESSAGE_REPLY, UINT32_MAX, 200}, back;
  struct message_body body;
  struct error error;
  size_t length;
  assert_int_equal(message_encode(&head, &message_ping_type, &ping, buffer, sizeof buffer, &length, &error), STATUS_OK);
  assert_int_equal(message_decode_head(buffer, length, &back, &body, &error), STATUS_OK);
  assert_memory_equal(&head, &back, sizeof head);
  struct message_ping again;
  assert_int_equal(message_decode_body(body, &message_ping_type, &again, &error), STATUS_OK);
  assert_true(again.payload == UINT64_MAX);
}

/* The very bytes of one message, so that a change of the wire cannot go unseen. */
static void the_bytes_of_a_ping(void **state) {
  static const uint8_t expected[] = {0x94, 0x00, 0x07, 0x03, 0x81, 0xa7, 'p', 'a', 'y', 'l', 'o', 'a', 'd', 0x2a};
  struct message_ping ping = {42};
  assert_int_equal(encode(&message_ping_type, &ping), sizeof expected);
  assert_memory_equal(buffer, expected, sizeof expected);
}

static struct message_weight_info full_weight(unsigned number) {
  struct message_weight_info info = {.n = 1 + number,
                                     .k = INT64_MAX,
                                     .format = UINT32_MAX,
                                     .scale = 2,
                                     .bytes = UINT64_MAX,
                                     .references = 1,
                                     .owner = 1000,
                                     .placement = 2,
                                     .shared = true,
                                     .parts_count = 2};
  snprintf(info.name, sizeof info.name, "block.%u.\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", number);
  for (size_t i = 0; i < sizeof info.hash; i++)
    info.hash[i] = (uint8_t)(i * 9);
  info.parts[0] = (struct message_weight_part){.device = 0, .handle = 0, .n_begin = INT64_MIN, .n_count = -1};
  info.parts[1] = (struct message_weight_part){.device = 3, .handle = UINT32_MAX, .n_begin = -33, .n_count = 127};
  return info;
}

static void every_kind_of_field(void **state) {
  struct message_weight_list_reply *reply = calloc(1, sizeof *reply), *back = malloc(sizeof *back);
  struct error error;
  reply->weights_count = LIMIT_PAGE_ITEMS;
  reply->more = true;
  for (unsigned i = 0; i < LIMIT_PAGE_ITEMS; i++)
    reply->weights[i] = full_weight(i);
  memset(back, 0x5a, sizeof *back);
  size_t length = encode(&message_weight_list_reply_type, reply);
  assert_int_equal(decode(buffer, length, &message_weight_list_reply_type, back, &error), STATUS_OK);
  assert_int_equal(back->weights_count, LIMIT_PAGE_ITEMS);
  assert_true(back->more);
  for (unsigned i = 0; i < LIMIT_PAGE_ITEMS; i++) {
    const struct message_weight_info *a = &reply->weights[i], *b = &back->weights[i];
    assert_string_equal(a->name, b->name);
    assert_true(a->n == b->n && a->k == b->k && a->format == b->format && a->scale == b->scale);
    assert_true(a->bytes == b->bytes && a->references == b->references && a->owner == b->owner);
    assert_true(a->placement == b->placement && a->shared == b->shared && a->parts_count == b->parts_count);
    assert_memory_equal(a->hash, b->hash, sizeof a->hash);
    assert_memory_equal(a->parts, b->parts, 2 * sizeof a->parts[0]);
    assert_int_equal(b->parts[2].device, 0);
  }
  free(reply);
  free(back);
}

static void absent_optionals_are_zero(void **state) {
  struct message_weight_load load = {.format = 1}, back;
  struct error error;
  strcpy(load.name, "a");
  strcpy(load.tensor, "b");
  size_t length = encode(&message_weight_load_type, &load);
  assert_true(length < 40); /* zeros do not travel where they may be absent */
  memset(&back, 0x5a, sizeof back);
  assert_int_equal(decode(buffer, length, &message_weight_load_type, &back, &error), STATUS_OK);
  assert_memory_equal(&back, &load, sizeof back);
}

static void empty_bodies(void **state) {
  struct message_empty empty = {0};
  struct error error;
  assert_int_equal(encode(&message_empty_type, &empty), 5);
  assert_int_equal(decode(buffer, 5, &message_empty_type, &empty, &error), STATUS_OK);
}

static void the_longest_text(void **state) {
  struct message_weight_name name, back;
  struct error error;
  memset(name.name, 'x', sizeof name.name);
  struct message_head head = {MESSAGE_REQUEST, 1, 14};
  size_t length;
  assert_int_equal(message_encode(&head, &message_weight_name_type, &name, buffer, sizeof buffer, &length, &error),
                   STATUS_INVALID);
  assert_string_equal(error.text, "weight_name: name must be UTF-8 text of at most 255 bytes");
  name.name[255] = '\0';
  length = encode(&message_weight_name_type, &name);
  assert_int_equal(decode(buffer, length, &message_weight_name_type, &back, &error), STATUS_OK);
  assert_string_equal(back.name, name.name);
}

static void what_cannot_be_encoded(void **state) {
  struct message_head head = {MESSAGE_REQUEST, 1, 14};
  struct error error;
  size_t length;
  struct message_weight_name name = {.name = "\xff"};
  assert_int_equal(message_encode(&head, &message_weight_name_type, &name, buffer, sizeof buffer, &length, &error),
                   STATUS_INVALID);
  struct message_weight_close handles = {.parts_count = 17};
  assert_int_equal(message_encode(&head, &message_weight_close_type, &handles, buffer, sizeof buffer, &length, &error),
                   STATUS_INVALID);
  assert_string_equal(error.text, "weight_close: parts must have at most 16 items, got 17");
}

/* Every capacity below what a message takes is refused, and nothing behind it is touched. */
static void a_buffer_that_is_too_small(void **state) {
  struct message_weight_info info = full_weight(1);
  struct message_head head = {MESSAGE_REPLY, 1, 0};
  struct error error;
  size_t whole = encode(&message_weight_info_type, &info), length = 12345;
  for (size_t capacity = 0; capacity < whole; capacity++) {
    uint8_t *exact = malloc(capacity + 1);
    exact[capacity] = 0xa5;
    assert_int_equal(message_encode(&head, &message_weight_info_type, &info, exact, capacity, &length, &error),
                     STATUS_TOO_LARGE);
    assert_int_equal(exact[capacity], 0xa5);
    assert_int_equal(length, 12345);
    free(exact);
  }
}

/* A page may be more than a message holds: 64 weights with long names and 16 parts each. */
static void a_message_over_the_limit(void **state) {
  struct message_weight_list_reply *reply = calloc(1, sizeof *reply);
  struct message_head head = {MESSAGE_REPLY, 1, 0};
  struct error error;
  size_t length;
  reply->weights_count = LIMIT_PAGE_ITEMS;
  for (unsigned i = 0; i < LIMIT_PAGE_ITEMS; i++) {
    memset(reply->weights[i].name, 'n', 255);
    reply->weights[i].parts_count = 16;
    for (unsigned j = 0; j < 16; j++)
      reply->weights[i].parts[j] = (struct message_weight_part){UINT32_MAX, UINT32_MAX, INT64_MIN, INT64_MIN};
  }
  size_t large = (size_t)1 << 20;
  uint8_t *room = malloc(large);
  assert_int_equal(message_encode(&head, &message_weight_list_reply_type, reply, room, large, &length, &error),
                   STATUS_TOO_LARGE);
  assert_string_equal(error.text, "weight_list_reply does not fit into a message of 65536 bytes");
  free(room);
  free(reply);
}

/* ---- what is refused: the envelope */

static void broken_envelopes(void **state) {
  static const struct {
    const char *bytes;
    size_t length;
    const char *text;
  } cases[] = {
      {"", 0, "a message must be an array of 4: kind, id, code, body"},
      {"\x93\x00\x01\x02", 4, "a message must be an array of 4: kind, id, code, body"},
      {"\x95\x00\x01\x02\x80\x00", 6, "a message must be an array of 4: kind, id, code, body"},
      {"\x80", 1, "a message must be an array of 4: kind, id, code, body"},
      {"\x94", 1, "the message ends inside a value"},
      {"\x94\x00\x01\x02", 4, "the message ends inside a value"},
      {"\x94\x00\x01\x02\x80\x00", 6, "1 bytes follow the message"},
      {"\x94\x00\x01\x02\x80\x94\x00\x01\x02\x80", 10, "5 bytes follow the message"},
      {"\x94\x03\x01\x02\x80", 5, "kind of a message must be 0..2, got 3"},
      {"\x94\xff\x01\x02\x80", 5, "kind, id and code of a message must be integers of 0..2^32-1"},
      {"\x94\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00\x02\x80", 13,
       "kind, id and code of a message must be integers of 0..2^32-1"},
      {"\x94\x00\x01\xa1x\x80", 6, "kind, id and code of a message must be integers of 0..2^32-1"},
      {"\x94\x00\x01\xca\x00\x00\x00\x00\x80", 9, "kind, id and code of a message must be integers of 0..2^32-1"},
      {"\x94\x00\x01\x90\x80", 5, "arrays and maps are nested too deep"},
      {"\x94\x00\x01\x02\x90", 5, "the body of a message must be a map"},
      {"\x94\x00\x01\x02\xc0", 5, "the body of a message must be a map"},
      {"\x94\x00\x01\x02\xc1", 5, "byte 0xc1 is no msgpack value"},
      {"\x94\x00\x01\x02\xdf\xff\xff\xff\xff", 9, "the message ends inside a value"},
      {"\x94\x00\x01\x02\x81\xa1x\xdd\xff\xff\xff\xff", 12, "the message ends inside a value"},
      {"\x94\x00\x01\x02\x81\xa1x\xdb\xff\xff\xff\xff", 12, "the message ends inside a value"},
      {"\x94\x00\x01\x02\x81\xa1x\xc6\xff\xff\xff\xff", 12, "the message ends inside a value"},
      {"\x94\x00\x01\x02\x81\xa1x\xc9\xff\xff\xff\xff\x01", 13, "the message ends inside a value"},
      {"\x94\x00\x01\x02\x81\xa1x\xcd\x01", 9, "the message ends inside a value"},
      {"\x94\x00\x01\x02\x8f\xa1x\x01", 8, "the message ends inside a value"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct message_empty empty;
    expect_protocol(cases[i].bytes, cases[i].length, &message_empty_type, &empty, cases[i].text);
  }
}

static void every_msgpack_value_can_be_skipped(void **state) {
  static const struct {
    const char *bytes;
    size_t length;
  } values[] = {
      {"\x00", 1},
      {"\xff", 1},
      {"\xc0", 1},
      {"\xc2", 1},
      {"\xa3xyz", 4},
      {"\xca\x3f\x80\x00\x00", 5},
      {"\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00", 9},
      {"\xcc\xff", 2},
      {"\xcd\xff\xff", 3},
      {"\xce\xff\xff\xff\xff", 5},
      {"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9},
      {"\xd0\x80", 2},
      {"\xd1\x80\x00", 3},
      {"\xd2\x80\x00\x00\x00", 5},
      {"\xd3\x80\x00\x00\x00\x00\x00\x00\x00", 9},
      {"\xd4\x01x", 3},
      {"\xd5\x01xy", 4},
      {"\xd6\x01wxyz", 6},
      {"\xd7\x01stuvwxyz", 10},
      {"\xd8\x01klmnopqrstuvwxyz", 18},
      {"\xc7\x02\x01xy", 5},
      {"\xc8\x00\x02\x01xy", 6},
      {"\xc9\x00\x00\x00\x02\x01xy", 8},
      {"\xc4\x02xy", 4},
      {"\xc5\x00\x02xy", 5},
      {"\xc6\x00\x00\x00\x02xy", 7},
      {"\xd9\x02xy", 4},
      {"\xda\x00\x02xy", 5},
      {"\xdb\x00\x00\x00\x02xy", 7},
      {"\x92\x01\x02", 3},
      {"\xdc\x00\x02\x01\x02", 5},
      {"\xdd\x00\x00\x00\x02\x01\x02", 7},
      {"\x81\x01\x02", 3},
      {"\xde\x00\x01\x01\x02", 5},
      {"\xdf\x00\x00\x00\x01\x01\x02", 7},
  };
  for (size_t i = 0; i < COUNT(values); i++) {
    static const char begin[] = "\x94\x00\x01\x02\x82\xa7unknown", end[] = "\xa7payload\x05";
    size_t length = 0;
    memcpy(buffer, begin, sizeof begin - 1);
    length += sizeof begin - 1;
    memcpy(buffer + length, values[i].bytes, values[i].length);
    length += values[i].length;
    memcpy(buffer + length, end, sizeof end - 1);
    length += sizeof end - 1;
    struct message_ping ping;
    struct error error;
    assert_int_equal(decode(buffer, length, &message_ping_type, &ping, &error), STATUS_OK);
    assert_true(ping.payload == 5);
    for (size_t cut = 1; cut < length; cut++) /* and no prefix of it passes */
      assert_int_equal(decode(buffer, length - cut, &message_ping_type, &ping, &error), STATUS_PROTOCOL);
  }
}

/* Body is level 2 of LIMIT_MESSAGE_DEPTH; arrays and maps in turn below it. */
static void too_deep(void **state) {
  for (unsigned levels = 0; levels < 40000; levels = levels < 8 ? levels + 1 : levels * 5) {
    size_t length = 0;
    memcpy(buffer, "\x94\x00\x01\x02\x81\xa1x", 7);
    length = 7;
    for (unsigned i = 0; i < levels; i++)
      buffer[length++] = 0x91;
    buffer[length++] = 0x00;
    struct message_empty empty;
    struct error error;
    enum status status = decode(buffer, length, &message_empty_type, &empty, &error);
    assert_int_equal(status, levels <= LIMIT_MESSAGE_DEPTH - 2 ? STATUS_OK : STATUS_PROTOCOL);
  }
}

static void too_long(void **state) {
  memset(buffer, 'x', sizeof buffer);
  memcpy(buffer, "\x94\x00\x01\x02\x81\xa1x\xda", 8);
  for (size_t length = LIMIT_MESSAGE_BYTES - 1; length <= LIMIT_MESSAGE_BYTES + 1; length++) {
    size_t text = length - 10 < 65535 ? length - 10 : 65535;
    buffer[8] = (uint8_t)(text >> 8);
    buffer[9] = (uint8_t)text;
    struct message_empty empty;
    struct error error;
    enum status status = decode(buffer, length, &message_empty_type, &empty, &error);
    assert_int_equal(status, length <= LIMIT_MESSAGE_BYTES ? STATUS_OK : STATUS_PROTOCOL);
  }
}

/* ---- what is refused: bodies */

static void expect_body(const char *bytes, size_t length, const struct message_type *type, const char *text) {
  static uint64_t out[8192];
  struct error error = {.text = ""};
  struct message_body body = {(const uint8_t *)bytes, length};
  enum status status = message_decode_body(body, type, out, &error);
  assert_string_equal(error.text, text);
  assert_int_equal(status, text[0] ? STATUS_PROTOCOL : STATUS_OK);
}
#define EXPECT_BODY(bytes, type, text) expect_body(bytes, sizeof(bytes) - 1, &message_##type##_type, text)

static void fields_of_the_wrong_kind(void **state) {
  EXPECT_BODY("\x81\xa7payload\x01", ping, "");
  EXPECT_BODY("\x81\xa7payload\xff", ping, "ping: payload must be an integer of 0..2^64-1");
  EXPECT_BODY("\x81\xa7payload\xa1x", ping, "ping: payload must be an integer of 0..2^64-1");
  EXPECT_BODY("\x81\xa7payload\xcb\x3f\xf0\0\0\0\0\0\0", ping, "ping: payload must be an integer of 0..2^64-1");
  EXPECT_BODY("\x81\xa7payload\xc0", ping, "ping: payload must be an integer of 0..2^64-1");
  EXPECT_BODY("\x81\xa6"
              "device\xce\xff\xff\xff\xff",
              queue_open, "");
  EXPECT_BODY("\x81\xa6"
              "device\xcf\0\0\0\1\0\0\0\0",
              queue_open, "queue_open: device must be an integer of 0..2^32-1");
  EXPECT_BODY("\x81\xa6"
              "device\xff",
              queue_open, "queue_open: device must be an integer of 0..2^32-1");
  EXPECT_BODY("\x81\xa4name\x01", weight_name, "weight_name: name must be text");
  EXPECT_BODY("\x81\xa4name\xc4\x01x", weight_name, "weight_name: name must be text");
  EXPECT_BODY("\x81\xa4name\xa3x\0y", weight_name, "weight_name: name must be UTF-8 text without NUL");
  EXPECT_BODY("\x81\xa5parts\x81\x01\x02", weight_close, "weight_close: parts must be an array");
  EXPECT_BODY("\x81\xa5parts\x91\x01", weight_close, "weight_part must be a map");
  EXPECT_BODY("\x81\xa5parts\x91\x80", weight_close, "weight_part: device is missing");
  EXPECT_BODY("\x81\xa4more\x01", weight_list_reply, "weight_list_reply: more must be true or false");
  EXPECT_BODY("\x81\xa4hash\xc4\x02xy", load_done, "load_done: hash must be 32 bytes");
  EXPECT_BODY("\x81\xa1n\xcf\x80\0\0\0\0\0\0\0", load_done, "load_done: n must be an integer of -2^63..2^63-1");
}

static void missing_and_repeated_fields(void **state) {
  EXPECT_BODY("\x80", ping, "ping: payload is missing");
  EXPECT_BODY("\x82\xa7payload\x01\xa7payload\x01", ping, "ping: payload is repeated");
  EXPECT_BODY("\x81\x01\x02", ping, "ping: keys must be text");
  EXPECT_BODY("\x82\xa8payload1\x02\xa7payload\x01", ping, "");
  EXPECT_BODY("\x82\xa6payloa\x02\xa7payload\x01", ping, "");
  EXPECT_BODY("\x90", ping, "ping must be a map");
  EXPECT_BODY("\x81\xa7payload\x01\x00", ping, "1 bytes follow the body");
  EXPECT_BODY("\x81\xa7payload", ping, "the message ends inside a value");
  EXPECT_BODY("", ping, "the message ends inside a value");
}

static void text_and_lists_over_their_size(void **state) {
  char bytes[512] = "\x81\xa4name\xda\x01\x00";
  memset(bytes + 9, 'x', 256);
  expect_body(bytes, 9 + 256, &message_weight_name_type, "weight_name: name must have at most 255 bytes, got 256");
  char list[64] = "\x81\xa5parts\xdc\x00\x11";
  memset(list + 10, 0x80, 17);
  expect_body(list, 10 + 17, &message_weight_close_type, "weight_close: parts must have at most 16 items, got 17");
}

static void text_that_is_no_utf8(void **state) {
  static const char *const bad[] = {"\x80",
                                    "\xc3",
                                    "\xc0\xaf",
                                    "\xe2\x82",
                                    "\xed\xa0\x80",
                                    "\xe0\x80\x80",
                                    "\xf5\x80\x80\x80",
                                    "\xf4\x90\x80\x80",
                                    "\xf0\x80\x80\x80",
                                    "\xc3x"};
  for (size_t i = 0; i < COUNT(bad); i++) {
    char bytes[32] = "\x81\xa4name";
    size_t length = strlen(bad[i]);
    bytes[6] = (char)(0xa0 | length);
    memcpy(bytes + 7, bad[i], length);
    expect_body(bytes, 7 + length, &message_weight_name_type, "weight_name: name must be UTF-8 text without NUL");
  }
}

/* Any byte of a good message, changed to anything, or any cut: an answer, and no access outside the bytes (each is
 * decoded from memory of exactly its size, for the sanitizer). */
static void changed_messages(void **state) {
  struct message_weight_info info = full_weight(0), out = {0};
  size_t length = encode(&message_weight_info_type, &info), refused = 0;
  uint8_t *copy = malloc(length);
  struct error error;
  for (size_t at = 0; at < length; at++)
    for (unsigned value = 0; value < 256; value++) {
      memcpy(copy, buffer, length);
      copy[at] = (uint8_t)value;
      enum status status = decode(copy, length, &message_weight_info_type, &out, &error);
      assert_true(status == STATUS_OK || status == STATUS_PROTOCOL);
      assert_int_equal(out.name[sizeof out.name - 1], 0);
      assert_true(out.parts_count <= COUNT(out.parts));
      refused += status == STATUS_PROTOCOL;
    }
  free(copy);
  assert_true(refused > length);
  for (size_t cut = 0; cut < length; cut++) {
    copy = malloc(cut + 1);
    memcpy(copy, buffer, cut);
    assert_int_equal(decode(copy, cut, &message_weight_info_type, &out, &error), STATUS_PROTOCOL);
    free(copy);
  }
}

/* ---- failures */

static void failures_carry_the_error(void **state) {
  struct error cause, back, error;
  struct message_head head;
  struct message_body body;
  size_t length;
  assert_int_equal(error_field(&cause, STATUS_BUSY, FIELD_BYTES, -5, 1, 10), STATUS_BUSY);
  assert_int_equal(message_encode_failure(9, &cause, 250, buffer, sizeof buffer, &length, &error), STATUS_OK);
  assert_int_equal(message_decode_head(buffer, length, &head, &body, &error), STATUS_OK);
  assert_int_equal(head.kind, MESSAGE_REPLY);
  assert_int_equal(head.id, 9);
  assert_int_equal(head.code, STATUS_BUSY);
  message_decode_failure(head.code, body, &back);
  assert_memory_equal(&back, &cause, offsetof(struct error, text));
  assert_string_equal(back.text, cause.text);
  struct message_failure failure;
  assert_int_equal(message_decode_body(body, &message_failure_type, &failure, &error), STATUS_OK);
  assert_int_equal(failure.retry_ms, 250);
}

static void failures_of_unknown_status_or_body(void **state) {
  struct error back;
  static const uint8_t good[] = "\x81\xa4text\xa2hm", empty_text[] = "\x81\xa4text\xa0", wrong[] = "\x80";
  message_decode_failure(250, (struct message_body){good, sizeof good - 1}, &back);
  assert_int_equal(back.status, STATUS_INTERNAL);
  assert_string_equal(back.text, "hm");
  message_decode_failure(STATUS_OK, (struct message_body){good, sizeof good - 1}, &back);
  assert_int_equal(back.status, STATUS_INTERNAL);
  message_decode_failure(STATUS_NOMEM, (struct message_body){empty_text, sizeof empty_text - 1}, &back);
  assert_int_equal(back.status, STATUS_NOMEM);
  assert_string_equal(back.text, "out of memory");
  message_decode_failure(STATUS_NOMEM, (struct message_body){wrong, sizeof wrong - 1}, &back);
  assert_int_equal(back.status, STATUS_PROTOCOL);
}

static void failures_go_out_whatever_they_quote(void **state) {
  struct error cause, back, error;
  struct message_head head;
  struct message_body body;
  size_t length;
  assert_int_equal(error_set(&cause, STATUS_SYSTEM, "open /\xff\xc3: \xc3\xa4"), STATUS_SYSTEM);
  assert_int_equal(message_encode_failure(1, &cause, 0, buffer, sizeof buffer, &length, &error), STATUS_OK);
  assert_int_equal(message_decode_head(buffer, length, &head, &body, &error), STATUS_OK);
  message_decode_failure(head.code, body, &back);
  assert_int_equal(back.status, STATUS_SYSTEM);
  assert_string_equal(back.text, "open /??: \xc3\xa4");
}

/* ---- commands */

static void the_command_table(void **state) {
  size_t count;
  const struct command_info *table = command_table(&count);
  for (size_t i = 0; i < count; i++) {
    assert_ptr_equal(command_find(table[i].number), &table[i]);
    assert_true(i == 0 || table[i].number > table[i - 1].number);
    assert_true(table[i].fds <= LIMIT_MESSAGE_FDS);
    assert_true(table[i].since >= PROTOCOL_VERSION_MIN && table[i].since <= PROTOCOL_VERSION_MAX);
  }
  assert_string_equal(command_find(COMMAND_hello)->name, "hello");
  assert_int_equal(command_find(COMMAND_hello)->states, STATE_NEW);
  assert_int_equal(command_find(COMMAND_ping)->states, STATE_OPEN | STATE_ARENA);
  assert_int_equal(command_find(COMMAND_weight_open)->states, STATE_ARENA);
  assert_int_equal(command_find(COMMAND_slab_create)->permission, PERMISSION_INTERNAL);
  assert_int_equal(command_find(COMMAND_weight_load)->fds, 1);
  assert_ptr_equal(command_find(COMMAND_weight_load)->request, &message_weight_load_type);
  assert_ptr_equal(command_find(COMMAND_weight_load)->reply, &message_weight_info_type);
  assert_null(command_find(0));
  assert_null(command_find(EVENT_weight_progress));
  assert_null(command_find(UINT32_MAX));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_envelope),
      cmocka_unit_test(the_bytes_of_a_ping),
      cmocka_unit_test(every_kind_of_field),
      cmocka_unit_test(absent_optionals_are_zero),
      cmocka_unit_test(empty_bodies),
      cmocka_unit_test(the_longest_text),
      cmocka_unit_test(what_cannot_be_encoded),
      cmocka_unit_test(a_buffer_that_is_too_small),
      cmocka_unit_test(a_message_over_the_limit),
      cmocka_unit_test(broken_envelopes),
      cmocka_unit_test(every_msgpack_value_can_be_skipped),
      cmocka_unit_test(too_deep),
      cmocka_unit_test(too_long),
      cmocka_unit_test(fields_of_the_wrong_kind),
      cmocka_unit_test(missing_and_repeated_fields),
      cmocka_unit_test(text_and_lists_over_their_size),
      cmocka_unit_test(text_that_is_no_utf8),
      cmocka_unit_test(changed_messages),
      cmocka_unit_test(failures_carry_the_error),
      cmocka_unit_test(failures_of_unknown_status_or_body),
      cmocka_unit_test(failures_go_out_whatever_they_quote),
      cmocka_unit_test(the_command_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
