#include "ring.h"

#include "../limits.h"
#include "../place.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* Ordering. An entry is written, then its index is stored; an index is read, then its entry: release and acquire.
 * Sleeping needs more: a sleeper raises its flag and looks again at the index, a publisher stores the index and looks
 * at the flag, and one of them must see the other. A release store may pass a later load, so both sides use
 * sequentially consistent operations, which have one order that all agree on. (Fences would do as well, but
 * ThreadSanitizer does not understand them, and an exchange is no slower than a fence.) */
#define READ(word) atomic_load_explicit(&(word), memory_order_acquire)
#define READ_IN_ORDER(word) atomic_load_explicit(&(word), memory_order_seq_cst)
#define PUBLISH(word, value) atomic_store_explicit(&(word), (value), memory_order_release)
#define PUBLISH_IN_ORDER(word, value) atomic_store_explicit(&(word), (value), memory_order_seq_cst)

enum { PAGE = 4096 };

static bool power_of_two(uint32_t value) {
  return value != 0 && (value & (value - 1)) == 0;
}

uint64_t ring_queue_bytes(uint32_t entries) {
  uint64_t entry = sizeof(struct ring_submission) + sizeof(struct ring_completion);
  return gemm_round_up(sizeof(struct ring_queue) + entry * entries, PAGE);
}

uint64_t ring_queue_offset(uint32_t entries, uint32_t device) {
  return RING_HEADER_BYTES + ring_queue_bytes(entries) * device;
}

uint64_t ring_tensor_offset(uint32_t entries, uint32_t devices) {
  return ring_queue_offset(entries, devices);
}

enum status ring_check(uint32_t devices, uint32_t entries, uint64_t arena_bytes, struct error *error) {
  if (devices < 1 || devices > LIMIT_DEVICES)
    return error_field(error, STATUS_INVALID, FIELD_DEVICE, devices, 1, LIMIT_DEVICES);
  if (entries < 1 || entries > LIMIT_RING_ENTRIES)
    return error_field(error, STATUS_INVALID, FIELD_ENTRIES, entries, 1, LIMIT_RING_ENTRIES);
  if (!power_of_two(entries))
    return error_set(error, STATUS_INVALID, "entries must be a power of two, got %" PRIu32, entries);
  uint64_t least = ring_tensor_offset(entries, devices) + PAGE;
  if (arena_bytes < least || arena_bytes > LIMIT_ARENA_BYTES)
    return error_field(error, STATUS_INVALID, FIELD_BYTES, arena_bytes > INT64_MAX ? INT64_MAX : (int64_t)arena_bytes,
                       (int64_t)least, LIMIT_ARENA_BYTES);
  return STATUS_OK;
}

void ring_format(void *arena, uint32_t devices, uint32_t entries, uint64_t arena_bytes) {
  struct ring_header *header = arena;
  *header = (struct ring_header){
      .magic = RING_MAGIC,
      .version = RING_VERSION,
      .devices = devices,
      .entries = entries,
      .arena_bytes = arena_bytes,
      .tensor_offset = ring_tensor_offset(entries, devices),
  };
  for (uint32_t device = 0; device < devices; device++) {
    struct ring_queue *queue = ring_queue_at(arena, entries, device);
    PUBLISH(queue->client_generation, 1);
    PUBLISH(queue->worker_state, RING_WORKER_STARTING);
    PUBLISH(queue->worker_generation, 1);
  }
}

enum status ring_header_check(const struct ring_header *header, uint64_t arena_bytes, struct error *error) {
  if (header->magic != RING_MAGIC)
    return error_set(error, STATUS_PROTOCOL, "the arena does not begin with its magic number");
  if (header->version != RING_VERSION)
    return error_set(error, STATUS_VERSION, "arena version must be %u, got %" PRIu32, RING_VERSION, header->version);
  enum status status = ring_check(header->devices, header->entries, arena_bytes, error);
  if (status != STATUS_OK)
    return status;
  if (header->arena_bytes != arena_bytes)
    return error_set(error, STATUS_PROTOCOL, "the arena says it has %" PRIu64 " bytes, and has %" PRIu64,
                     header->arena_bytes, arena_bytes);
  if (header->tensor_offset != ring_tensor_offset(header->entries, header->devices))
    return error_set(error, STATUS_PROTOCOL, "tensors must begin at %" PRIu64 ", the arena says %" PRIu64,
                     ring_tensor_offset(header->entries, header->devices), header->tensor_offset);
  return STATUS_OK;
}

struct ring_queue *ring_queue_at(void *arena, uint32_t entries, uint32_t device) {
  return (struct ring_queue *)((char *)arena + ring_queue_offset(entries, device));
}

static struct ring_submission *submissions_of(struct ring_queue *queue) {
  return (struct ring_submission *)(queue + 1);
}

static struct ring_completion *completions_of(struct ring_queue *queue, uint32_t entries) {
  return (struct ring_completion *)(submissions_of(queue) + entries);
}

/* ---- client */

void ring_client_init(struct ring_client *ring, void *arena, uint32_t entries, uint32_t device) {
  struct ring_queue *queue = ring_queue_at(arena, entries, device);
  *ring = (struct ring_client){
      .queue = queue,
      .submissions = submissions_of(queue),
      .completions = completions_of(queue, entries),
      .entries = entries,
      .submission_tail = READ(queue->submission_tail),
      .completion_head = READ(queue->completion_head),
      .generation = READ(queue->client_generation),
  };
  ring->in_flight = ring->submission_tail - ring->completion_head;
}

uint32_t ring_client_room(const struct ring_client *ring) {
  uint32_t waiting = ring->submission_tail - READ(ring->queue->submission_head);
  uint32_t most = waiting > ring->in_flight ? waiting : ring->in_flight;
  return most < ring->entries ? ring->entries - most : 0;
}

/* The caller has seen that there is room. */
static void client_publish(struct ring_client *ring, const struct ring_submission *submission, bool *wake) {
  ring->submissions[ring->submission_tail & (ring->entries - 1)] = *submission;
  PUBLISH_IN_ORDER(ring->queue->submission_tail, ++ring->submission_tail);
  *wake = READ_IN_ORDER(ring->queue->worker_sleeping) != 0;
}

bool ring_client_submit(struct ring_client *ring, const struct ring_submission *submission, bool *wake) {
  *wake = false;
  if (ring_client_room(ring) == 0)
    return false;
  ring->in_flight++;
  client_publish(ring, submission, wake);
  return true;
}

bool ring_client_cancel(struct ring_client *ring, uint64_t tag, bool *wake) {
  const struct ring_submission submission = {.opcode = RING_OP_CANCEL, .tag = tag};
  *wake = false;
  if (ring->submission_tail - READ(ring->queue->submission_head) >= ring->entries)
    return false;
  client_publish(ring, &submission, wake);
  return true;
}

bool ring_client_taken(const struct ring_client *ring, uint32_t number) {
  return (int32_t)(READ(ring->queue->submission_head) - number) > 0;
}

bool ring_client_ready(const struct ring_client *ring) {
  return READ(ring->queue->completion_tail) != ring->completion_head;
}

bool ring_client_take(struct ring_client *ring, struct ring_completion *out) {
  if (!ring_client_ready(ring))
    return false;
  *out = ring->completions[ring->completion_head & (ring->entries - 1)];
  ring->in_flight--;
  PUBLISH(ring->queue->completion_head, ++ring->completion_head);
  return true;
}

bool ring_client_replaced(const struct ring_client *ring) {
  return READ(ring->queue->worker_generation) != ring->generation;
}

void ring_client_reset(struct ring_client *ring) {
  struct ring_queue *queue = ring->queue;
  uint32_t generation = READ(queue->worker_generation);
  ring->submission_tail = ring->completion_head = ring->in_flight = 0;
  ring->generation = generation;
  /* The worker's indices as well: its predecessor left them, and it does not touch the rings before it has seen the
   * generation. Its sleep flag is not among them, it may be up already. */
  PUBLISH(queue->submission_tail, 0);
  PUBLISH(queue->completion_head, 0);
  PUBLISH(queue->submission_head, 0);
  PUBLISH(queue->completion_tail, 0);
  PUBLISH_IN_ORDER(queue->client_generation, generation);
}

enum ring_worker_state ring_client_worker_state(const struct ring_client *ring) {
  uint32_t state = READ(ring->queue->worker_state);
  return state == RING_WORKER_STARTING || state == RING_WORKER_READY ? (enum ring_worker_state)state
                                                                     : RING_WORKER_FAILED;
}

bool ring_client_sleep(struct ring_client *ring) {
  struct ring_queue *queue = ring->queue;
  PUBLISH_IN_ORDER(queue->client_sleeping, 1);
  if (READ_IN_ORDER(queue->completion_tail) == ring->completion_head &&
      READ_IN_ORDER(queue->worker_generation) == ring->generation)
    return true;
  ring_client_awake(ring);
  return false;
}

void ring_client_awake(struct ring_client *ring) {
  PUBLISH(ring->queue->client_sleeping, 0);
}

/* ---- worker */

void ring_worker_init(struct ring_worker *ring, void *arena, uint32_t entries, uint32_t device, uint32_t generation) {
  struct ring_queue *queue = ring_queue_at(arena, entries, device);
  *ring = (struct ring_worker){
      .queue = queue,
      .submissions = submissions_of(queue),
      .completions = completions_of(queue, entries),
      .entries = entries,
      .generation = generation,
  };
}

enum status ring_worker_take(struct ring_worker *ring, struct ring_submission *out, bool *taken, struct error *error) {
  struct ring_queue *queue = ring->queue;
  *taken = false;
  uint32_t generation = READ(queue->client_generation);
  if (generation == 0 || generation > ring->generation)
    return error_set(error, STATUS_PROTOCOL, "client_generation is %" PRIu32 ", the worker's %" PRIu32, generation,
                     ring->generation);
  if (generation != ring->generation)
    return STATUS_OK; /* the client has not seen yet that this worker took another's place */
  /* In this order: a client publishes what it has taken before it submits more. So an honest one never has more than
   * `entries` on the way, and what waits here has room for its completion. */
  uint32_t waiting = READ(queue->submission_tail) - ring->submission_head;
  uint32_t untaken = ring->completion_tail - READ(queue->completion_head);
  if (waiting == 0)
    return STATUS_OK;
  bool possible = waiting <= ring->entries && untaken <= ring->entries;
  if (possible)
    memcpy(out, &ring->submissions[ring->submission_head & (ring->entries - 1)], sizeof *out);
  bool cancels = possible && out->opcode == RING_OP_CANCEL;
  if (!possible || (!cancels && untaken + ring->in_flight >= ring->entries))
    return error_set(error, STATUS_PROTOCOL,
                     "ring of %" PRIu32 " entries: %" PRIu32 " submissions and %" PRIu32 " completions wait",
                     ring->entries, waiting, untaken);
  PUBLISH(queue->submission_head, ++ring->submission_head);
  ring->in_flight += !cancels;
  *taken = true;
  return STATUS_OK;
}

void ring_worker_complete(struct ring_worker *ring, const struct ring_completion *completion, bool *wake) {
  ring->completions[ring->completion_tail & (ring->entries - 1)] = *completion;
  ring->in_flight--;
  PUBLISH_IN_ORDER(ring->queue->completion_tail, ++ring->completion_tail);
  *wake = READ_IN_ORDER(ring->queue->client_sleeping) != 0;
}

bool ring_worker_watched(const struct ring_worker *ring) {
  return READ(ring->queue->client_sleeping) == 0;
}

bool ring_worker_wanted(const struct ring_worker *ring) {
  return READ_IN_ORDER(ring->queue->client_generation) == ring->generation &&
         READ_IN_ORDER(ring->queue->submission_tail) != ring->submission_head;
}

bool ring_worker_sleep(struct ring_worker *ring) {
  struct ring_queue *queue = ring->queue;
  PUBLISH_IN_ORDER(queue->worker_sleeping, 1);
  if (!ring_worker_wanted(ring))
    return true;
  ring_worker_awake(ring);
  return false;
}

void ring_worker_awake(struct ring_worker *ring) {
  PUBLISH(ring->queue->worker_sleeping, 0);
}

/* ---- supervisor */

void ring_replace_worker(struct ring_queue *queue, uint32_t generation) {
  PUBLISH(queue->worker_state, RING_WORKER_STARTING);
  PUBLISH_IN_ORDER(queue->worker_generation, generation);
}

void ring_set_worker_state(struct ring_queue *queue, enum ring_worker_state state) {
  PUBLISH_IN_ORDER(queue->worker_state, (uint32_t)state);
}

bool ring_rest_worker(struct ring_queue *queue) {
  PUBLISH_IN_ORDER(queue->worker_sleeping, 1);
  return READ_IN_ORDER(queue->submission_tail) != READ_IN_ORDER(queue->submission_head);
}

/* ---- entries */

static enum status read_choice(const struct ring_submission *submission, struct gemm_choice *out, struct error *error) {
  const struct ring_choice *choice = &submission->choice;
  if (choice->x_pairs > 1 || choice->sum > 1 || choice->routed > 1 || choice->reserved != 0)
    return error_field(error, STATUS_INVALID, FIELD_RESERVED, 1, 0, 0);
  if (choice->top == 0)
    return error_field(error, STATUS_INVALID, FIELD_TOP, 0, 1, LIMIT_EXPERTS);
  if (choice->routed == 0 && submission->routing_offset != 0)
    return error_field(error, STATUS_INVALID, FIELD_ROUTING_OFFSET, 1, 0, 0);
  *out = (struct gemm_choice){.top = choice->top,
                              .x_pairs = choice->x_pairs,
                              .sum = choice->sum,
                              .routed = choice->routed,
                              .ids_offset = submission->ids_offset,
                              .routing_offset = submission->routing_offset};
  return STATUS_OK;
}

enum status ring_submission_form(const struct ring_submission *submission, struct tensors_form *out,
                                 struct error *error) {
  const struct ring_form *form = &submission->form;
  if ((form->flags & ~(RING_X_TURNED | RING_W_TURNED | RING_ADD)) != 0 || form->reserved != 0)
    return error_field(error, STATUS_INVALID, FIELD_RESERVED, 1, 0, 0);
  bool several = form->batch > 1;
  if (!several && submission->w_step != 0)
    return error_field(error, STATUS_INVALID, FIELD_PLAN_OFFSET, place_signed(submission->w_step), 0, 0);
  *out = (struct tensors_form){.x_turned = (form->flags & RING_X_TURNED) != 0,
                               .w_turned = (form->flags & RING_W_TURNED) != 0,
                               .add = (form->flags & RING_ADD) != 0,
                               .batch = form->batch,
                               .x_step = several ? submission->x_step : 0,
                               .w_step = submission->w_step,
                               .y_step = several ? submission->y_step : 0};
  return STATUS_OK;
}

enum status ring_submission_product(const struct ring_submission *submission, struct gemm_product *out,
                                    struct error *error) {
  struct gemm_choice choice = {.top = 0};
  bool experts = submission->opcode == RING_OP_EXPERTS;
  bool plan = submission->opcode == RING_OP_PLAN || (experts && submission->steps != 0);
  bool tensors = submission->opcode == RING_OP_TENSORS;
  if (submission->opcode != RING_OP_PRODUCT && !plan && !tensors && !experts)
    return error_field(error, STATUS_INVALID, FIELD_OPCODE, submission->opcode, RING_OP_NOP, RING_OP_EXPERTS);
  if (submission->priority >= RING_PRIORITIES)
    return error_field(error, STATUS_INVALID, FIELD_PRIORITY, submission->priority, 0, RING_PRIORITIES - 1);
  if (!plan && !tensors && submission->steps != 0)
    return error_field(error, STATUS_INVALID, FIELD_STEPS, submission->steps, 0, 0);
  if (!plan && !tensors && submission->plan_offset != 0)
    return error_field(error, STATUS_INVALID, FIELD_PLAN_OFFSET, place_signed(submission->plan_offset), 0, 0);
  if (experts && read_choice(submission, &choice, error) != STATUS_OK)
    return error->status;
  if (!tensors && !experts && submission->w_offset != 0)
    return error_field(error, STATUS_INVALID, FIELD_W_OFFSET, place_signed(submission->w_offset), 0, 0);
  if (!tensors && !experts && submission->w_stride != 0)
    return error_field(error, STATUS_INVALID, FIELD_W_STRIDE, place_signed(submission->w_stride), 0, 0);
  *out = (struct gemm_product){
      .m = submission->m,
      .n = submission->n,
      .k = submission->k,
      .x_type = (enum gemm_type)submission->x_type,
      .y_type = (enum gemm_type)submission->y_type,
      .bias_type = (enum gemm_type)submission->bias_type,
      .x_offset = submission->x_offset,
      .y_offset = submission->y_offset,
      .x_stride = submission->x_stride,
      .y_stride = submission->y_stride,
      .bias_offset = submission->bias_offset,
      .x_scale_offset = experts || tensors ? 0 : submission->x_scale_offset,
      .choice = choice,
      .x_tensor = submission->x_tensor,
      .y_tensor = submission->y_tensor,
      .w_tensor = tensors ? submission->weight : 0,
  };
  return STATUS_OK;
}

void ring_completion_from_error(struct ring_completion *completion, const struct error *error) {
  completion->status = (uint16_t)error->status;
  completion->field = (uint16_t)error->field;
  completion->value = error->value;
  completion->low = error->low;
  completion->high = error->high;
}

void ring_completion_to_error(const struct ring_completion *completion, struct error *out) {
  *out = (struct error){
      .status = status_known(completion->status) ? (enum status)completion->status : STATUS_INTERNAL,
      .field = (enum field)completion->field,
      .value = completion->value,
      .low = completion->low,
      .high = completion->high,
  };
  gemm_error_compose(out);
}
