/* Prints the protocol as one JSON object, for generators of clients: commands, events, bodies, statuses, fields, types,
 * limits, and where words and entries lie in the arena. What the numbers mean is in PROTOCOL.md. */
#include "../../proto/gemm.h"
#include "../../proto/limits.h"
#include "../../proto/shm/plan.h"
#include "../../proto/shm/ring.h"
#include "../../proto/wire/message.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

static const char *separator = "";

static const char *next(void) {
  const char *now = separator;
  separator = ",";
  return now;
}

static void begin(const char *name, char bracket) {
  printf("%s\n\"%s\": %c", next(), name, bracket);
  separator = "";
}

static void end(char bracket) {
  printf("\n%c", bracket);
  separator = ",";
}

static void number(const char *name, uint64_t value) {
  printf("%s\n  \"%s\": %" PRIu64, next(), name, value);
}

/* ---- control messages */

static void commands(void) {
  begin("commands", '[');
#define COMMAND(code, name, permission, state, request, reply, fds, since, summary)                                    \
  printf("%s\n  {\"number\": %d, \"name\": \"%s\", \"permission\": \"%s\", \"state\": \"%s\", \"request\": \"%s\", "   \
         "\"reply\": \"%s\", \"descriptors\": %d, \"since\": %d}",                                                     \
         next(), code, #name, #permission, #state, #request, #reply, fds, since);
#include "../../proto/wire/commands.def"
  end(']');
  begin("events", '[');
#define EVENT(code, name, body)                                                                                        \
  printf("%s\n  {\"number\": %d, \"name\": \"%s\", \"body\": \"%s\"}", next(), code, #name, #body);
#include "../../proto/wire/commands.def"
  end(']');
}

static void field_of(const char *name, const char *type, uint64_t most, const char *of, bool required) {
  printf("%s\n    {\"name\": \"%s\", \"type\": \"%s\"", next(), name, type);
  if (most > 0)
    printf(", \"most\": %" PRIu64, most);
  if (of != NULL)
    printf(", \"of\": \"%s\"", of);
  printf(", \"required\": %s}", required ? "true" : "false");
}

enum { OPTIONAL, REQUIRED };

/* Of a text `most` is its bytes without the NUL, which does not travel; of a list its items. */
static void bodies(void) {
  begin("bodies", '{');
#define MESSAGE(name)                                                                                                  \
  printf("%s\n  \"%s\": [", next(), #name);                                                                            \
  separator = "";
#define END(name)                                                                                                      \
  printf("]");                                                                                                         \
  separator = ",";
#define U32(field, presence) field_of(#field, "u32", 0, NULL, presence);
#define U64(field, presence) field_of(#field, "u64", 0, NULL, presence);
#define I64(field, presence) field_of(#field, "i64", 0, NULL, presence);
#define BOOL(field, presence) field_of(#field, "bool", 0, NULL, presence);
#define STR(field, bytes, presence) field_of(#field, "text", (bytes)-1, NULL, presence);
#define BIN(field, bytes, presence) field_of(#field, "bytes", bytes, NULL, presence);
#define LIST(field, name, most, presence) field_of(#field, "list", most, #name, presence);
#include "../../proto/wire/messages.def"
  end('}');
}

/* ---- numbers with names */

static void statuses(void) {
  begin("statuses", '[');
#define STATUS(code, name, retryable, text)                                                                            \
  printf("%s\n  {\"number\": %d, \"name\": \"%s\", \"retryable\": %s, \"text\": \"%s\"}", next(), code, #name,         \
         (retryable) ? "true" : "false", text);
#include "../../proto/status.def"
  end(']');
  begin("fields", '[');
#define FIELD(code, name, text)                                                                                        \
  printf("%s\n  {\"number\": %d, \"name\": \"%s\", \"text\": \"%s\"}", next(), code, #name, text);
#include "../../proto/status.def"
  end(']');
}

static void types(void) {
  begin("types", '{');
  for (enum gemm_type type = GEMM_F32; type <= GEMM_S32; type++)
    number(gemm_type_name(type), type);
  end('}');
  begin("formats", '{');
  for (enum gemm_format format = GEMM_FORMAT_INT8; format < GEMM_FORMATS; format++)
    number(gemm_format_name(format), format);
  end('}');
  begin("scale_modes", '{');
  for (enum gemm_scale scale = GEMM_SCALE_NONE; scale < GEMM_SCALES; scale++)
    number(gemm_scale_name(scale), scale);
  end('}');
  begin("opcodes", '{');
  number("nop", RING_OP_NOP);
  number("product", RING_OP_PRODUCT);
  number("cancel", RING_OP_CANCEL);
  number("plan", RING_OP_PLAN);
  number("tensors", RING_OP_TENSORS);
  number("experts", RING_OP_EXPERTS);
  end('}');
  begin("priorities", '{');
  number("normal", RING_PRIORITY_NORMAL);
  number("urgent", RING_PRIORITY_URGENT);
  number("background", RING_PRIORITY_BACKGROUND);
  end('}');
}

static void limits(void) {
  begin("limits", '{');
#define LIMIT(name) number(#name, (uint64_t)(name));
  LIMIT(LIMIT_MESSAGE_BYTES)
  LIMIT(LIMIT_MESSAGE_FDS)
  LIMIT(LIMIT_MESSAGE_DEPTH)
  LIMIT(LIMIT_NAME_BYTES)
  LIMIT(LIMIT_PAGE_ITEMS)
  LIMIT(LIMIT_DEVICES)
  LIMIT(LIMIT_PARTS)
  LIMIT(LIMIT_M)
  LIMIT(LIMIT_N)
  LIMIT(LIMIT_K)
  LIMIT(LIMIT_EXPERTS)
  LIMIT(LIMIT_K_INT8)
  LIMIT(LIMIT_RING_ENTRIES)
  LIMIT(LIMIT_ARENA_BYTES)
  LIMIT(LIMIT_SESSION_WEIGHTS)
  LIMIT(LIMIT_FILE_HEADER_BYTES)
  LIMIT(LIMIT_SESSION_TENSORS)
  LIMIT(LIMIT_TENSOR_BYTES)
  LIMIT(LIMIT_FILE_TENSORS)
  LIMIT(LIMIT_FILE_VALUES)
#undef LIMIT
  end('}');
}

/* ---- shared memory: [offset, bytes] of what has a name */

static void word(const char *name, size_t offset, size_t bytes) {
  printf("%s\n    \"%s\": [%zu, %zu]", next(), name, offset, bytes);
}

static void layout(const char *name, uint64_t bytes) {
  printf("%s\n  \"%s\": {\n    \"bytes\": %" PRIu64, next(), name, bytes);
  separator = ",";
}

static void layout_end(void) {
  printf("}");
  separator = ",";
}

#define WORD(type, member) word(#member, offsetof(struct type, member), sizeof(((struct type *)NULL)->member));

static void arena(void) {
  begin("arena", '{');
  layout("header", RING_HEADER_BYTES);
  WORD(ring_header, magic)
  WORD(ring_header, version)
  WORD(ring_header, devices)
  WORD(ring_header, entries)
  WORD(ring_header, arena_bytes)
  WORD(ring_header, tensor_offset)
  layout_end();
  layout("queue", sizeof(struct ring_queue));
  WORD(ring_queue, worker_generation)
  WORD(ring_queue, worker_state)
  WORD(ring_queue, submission_tail)
  WORD(ring_queue, completion_head)
  WORD(ring_queue, client_generation)
  WORD(ring_queue, client_sleeping)
  WORD(ring_queue, submission_head)
  WORD(ring_queue, worker_sleeping)
  WORD(ring_queue, completion_tail)
  layout_end();
  layout("completion", sizeof(struct ring_completion));
  WORD(ring_completion, tag)
  WORD(ring_completion, status)
  WORD(ring_completion, field)
  WORD(ring_completion, value)
  WORD(ring_completion, low)
  WORD(ring_completion, high)
  WORD(ring_completion, device_ns)
  WORD(ring_completion, queue_ns)
  layout_end();
}

static void submission(void) {
  layout("submission", sizeof(struct ring_submission));
  WORD(ring_submission, tag)
  WORD(ring_submission, opcode)
  WORD(ring_submission, event)
  WORD(ring_submission, weight)
  WORD(ring_submission, x_type)
  WORD(ring_submission, y_type)
  WORD(ring_submission, bias_type)
  WORD(ring_submission, priority)
  WORD(ring_submission, m)
  WORD(ring_submission, n)
  WORD(ring_submission, k)
  WORD(ring_submission, steps)
  WORD(ring_submission, x_offset)
  WORD(ring_submission, y_offset)
  WORD(ring_submission, x_stride)
  WORD(ring_submission, y_stride)
  WORD(ring_submission, bias_offset)
  WORD(ring_submission, x_scale_offset)
  WORD(ring_submission, deadline_ns)
  WORD(ring_submission, plan_offset)
  WORD(ring_submission, w_offset)
  WORD(ring_submission, w_stride)
  WORD(ring_submission, x_tensor)
  WORD(ring_submission, y_tensor)
  layout_end();
  layout("step", sizeof(struct ring_step));
  WORD(ring_step, weight)
  WORD(ring_step, activation)
  WORD(ring_step, gated)
  WORD(ring_step, y_type)
  WORD(ring_step, bias_type)
  WORD(ring_step, n)
  WORD(ring_step, k)
  WORD(ring_step, bias_offset)
  layout_end();
  end('}');
}

int main(void) {
  printf("{");
  number("version", 1);
  commands();
  bodies();
  statuses();
  types();
  limits();
  arena();
  submission();
  printf("\n}\n");
  return ferror(stdout) != 0;
}
