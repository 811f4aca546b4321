#include "serve.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* One product that may be in flight, with tensors of its own. */
struct slot {
  gemmd_product product;
  uint64_t ticket; /* 0: free */
  uint64_t asked_ns;
};

struct worker {
  const struct tool_call *call;
  const struct serve_settings *settings;
  struct serve_client *client;
  gemmd_session *session;
  gemmd_weight *weight;
  struct slot slots[SERVE_IN_FLIGHT_MAX];
  int in_flight;
  uint64_t count_from_ns; /* products asked for from here on count */
  uint64_t end_ns;        /* nothing is asked for after that; UINT64_MAX: `left` rules */
  uint64_t left;          /* counted products still to ask for */
};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- random activations: magnitudes of 2^-4..1 in every type, made of bits so that no type needs a conversion */

static uint64_t random_next(uint64_t *state) {
  uint64_t x = *state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return *state = x;
}

/* Sign, exponent of 2^-4..2^-1, random mantissa. */
static uint32_t random_float(uint64_t *state, unsigned exponent_bits, unsigned mantissa_bits) {
  uint64_t bits = random_next(state) >> 20;
  uint32_t bias = (1u << (exponent_bits - 1)) - 1;
  uint32_t exponent = bias - 4 + (uint32_t)(bits & 3);
  uint32_t mantissa = (uint32_t)(bits >> 3) & ((1u << mantissa_bits) - 1);
  uint32_t sign = (uint32_t)(bits >> 2) & 1;
  return sign << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa;
}

static void random_fill(void *x, enum gemmd_type type, size_t count, uint64_t *state) {
  for (size_t i = 0; i < count; i++) {
    if (type == GEMMD_F32)
      ((uint32_t *)x)[i] = random_float(state, 8, 23);
    else if (type == GEMMD_F16)
      ((uint16_t *)x)[i] = (uint16_t)random_float(state, 5, 10);
    else if (type == GEMMD_BF16)
      ((uint16_t *)x)[i] = (uint16_t)random_float(state, 8, 7);
    else if (type == GEMMD_E4M3)
      ((uint8_t *)x)[i] = (uint8_t)random_float(state, 4, 3);
    else
      ((int8_t *)x)[i] = (int8_t)((int)(random_next(state) >> 32) % 128);
  }
}

/* ---- before the start */

static bool take_tensors(struct worker *worker, struct slot *slot, uint64_t *state) {
  const struct serve_settings *settings = worker->settings;
  const gemmd_weight_info *info = &worker->settings->info;
  size_t x_count = (size_t)settings->m * (size_t)info->k, y_count = (size_t)settings->m * (size_t)info->n;
  void *x = gemmd_alloc(worker->session, x_count * type_bytes(settings->x_type));
  void *y = gemmd_alloc(worker->session, y_count * type_bytes(settings->y_type));
  if (x == NULL || y == NULL)
    return false;
  random_fill(x, settings->x_type, x_count, state);
  slot->product =
      (gemmd_product){.m = settings->m, .x = x, .x_type = settings->x_type, .y = y, .y_type = settings->y_type};
  if ((settings->x_type != GEMMD_INT8 && settings->x_type != GEMMD_E4M3) || settings->y_type == GEMMD_S32)
    return true;
  size_t scales = settings->m * (info->scale == GEMMD_SCALE_BLOCK ? ((size_t)info->k + 127) / 128 : 1);
  float *scale = gemmd_alloc(worker->session, scales * sizeof *scale);
  for (size_t i = 0; scale != NULL && i < scales; i++)
    scale[i] = 1.0f / 128;
  slot->product.x_scale = scale;
  return scale != NULL;
}

/* Bytes of shared memory for all slots; what gemmd_alloc rounds up included. */
static size_t arena_bytes(const struct serve_settings *settings, const gemmd_weight_info *info) {
  size_t x = settings->m * (size_t)info->k * type_bytes(settings->x_type);
  size_t y = settings->m * (size_t)info->n * type_bytes(settings->y_type);
  size_t scale = settings->m * sizeof(float) * (((size_t)info->k + 127) / 128);
  return (size_t)settings->in_flight * (x + y + scale + 3 * 512) + ((size_t)1 << 20);
}

static unsigned entries_for(int in_flight) {
  unsigned entries = 1;
  while (entries < (unsigned)in_flight)
    entries *= 2;
  return entries;
}

static enum tool_exit prepare(struct worker *worker, int number) {
  const struct serve_settings *settings = worker->settings;
  const gemmd_options options = {.arena_bytes = arena_bytes(settings, &worker->settings->info),
                                 .entries = entries_for(settings->in_flight),
                                 .name = "gemm-bench"};
  enum tool_exit code = tool_connect(worker->call, &options, &worker->session);
  if (code != TOOL_OK)
    return code;
  int status = gemmd_weight_open(worker->session, settings->weight, &worker->weight);
  if (status != GEMMD_OK)
    return tool_refused(worker->call, worker->session, status);
  const gemmd_weight_info *info = gemmd_weight_get_info(worker->weight);
  if (info->n != settings->info.n || info->k != settings->info.k)
    return tool_fail(worker->call, TOOL_REFUSED, "%s was replaced by a weight of another size", settings->weight);
  uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(number + 1);
  for (int i = 0; i < settings->in_flight; i++) {
    if (!take_tensors(worker, &worker->slots[i], &state))
      return tool_fail(worker->call, TOOL_REFUSED, "no room for %d products of M = %u in the session's shared memory",
                       settings->in_flight, settings->m);
  }
  return TOOL_OK;
}

/* ---- asking */

static bool may_ask(const struct worker *worker, uint64_t now) {
  return now < worker->count_from_ns || (now < worker->end_ns && worker->left > 0);
}

/* Says what failed first; the rest is counted. */
static void note_failure(struct worker *worker, int status) {
  if (worker->client->failures++ == 0)
    tool_refused(worker->call, worker->session, status);
}

/* A product of the warm-up that fails counts as a failure too: it would be a lie to leave it out. */
static bool ask(struct worker *worker, struct slot *slot, uint64_t now) {
  slot->asked_ns = now;
  int status = gemmd_submit(worker->weight, &slot->product, &slot->ticket);
  if (status != GEMMD_OK) {
    slot->ticket = 0;
    note_failure(worker, status);
    return false;
  }
  worker->in_flight++;
  if (now >= worker->count_from_ns)
    worker->left--;
  return true;
}

static struct slot *slot_of(struct worker *worker, uint64_t ticket) {
  for (int i = 0; i < worker->settings->in_flight; i++) {
    if (worker->slots[i].ticket == ticket)
      return &worker->slots[i];
  }
  return NULL;
}

static void record(struct worker *worker, struct slot *slot, const gemmd_result *result, uint64_t now) {
  struct serve_client *client = worker->client;
  if (result->status != GEMMD_OK) {
    note_failure(worker, result->status);
  } else if (slot->asked_ns >= worker->count_from_ns) {
    uint64_t latency = now - slot->asked_ns;
    uint64_t device = result->device_ns < latency ? result->device_ns : latency;
    histogram_add(&client->latency, latency);
    histogram_add(&client->device, device);
    histogram_add(&client->overhead, latency - device);
    client->end_ns = now;
  }
}

/* Waits for a product. False where the session is of no more use. */
static bool take(struct worker *worker, struct slot **freed) {
  gemmd_result result = {0};
  *freed = NULL;
  int status;
  if (worker->settings->in_flight == 1) {
    result.ticket = worker->slots[0].ticket;
    status = gemmd_wait(worker->session, result.ticket, -1, &result);
    result.status = status;
    if (status != GEMMD_DISCONNECTED)
      status = GEMMD_OK;
  } else {
    status = gemmd_wait_any(worker->session, -1, &result);
  }
  uint64_t now = now_ns();
  struct slot *slot = status == GEMMD_OK ? slot_of(worker, result.ticket) : NULL;
  if (slot == NULL) {
    note_failure(worker, status);
    return false;
  }
  record(worker, slot, &result, now);
  slot->ticket = 0;
  worker->in_flight--;
  *freed = slot;
  return true;
}

static void serve(struct worker *worker) {
  for (int i = 0; i < worker->settings->in_flight; i++) {
    uint64_t now = now_ns();
    if (may_ask(worker, now) && !ask(worker, &worker->slots[i], now))
      return;
  }
  while (worker->in_flight > 0) {
    struct slot *slot;
    if (!take(worker, &slot))
      return;
    uint64_t now = now_ns();
    if (may_ask(worker, now) && !ask(worker, slot, now))
      return;
  }
}

/* ---- a life */

/* Says "ready" and waits until the parent closes its end of the gate. */
static void wait_for_start(int ready, int gate) {
  char byte = 'r';
  if (write(ready, &byte, 1) != 1)
    return;
  close(ready);
  while (read(gate, &byte, 1) > 0)
    ;
  close(gate);
}

enum tool_exit serve_client_run(const struct tool_call *call, const struct serve_settings *settings, int number,
                                const struct serve_start *start, struct serve_client *client, int ready, int gate) {
  struct worker *worker = calloc(1, sizeof *worker);
  if (worker == NULL)
    return tool_fail(call, TOOL_REFUSED, "out of memory");
  worker->call = call;
  worker->settings = settings;
  worker->client = client;
  enum tool_exit code = prepare(worker, number);
  if (code == TOOL_OK) {
    wait_for_start(ready, gate);
    uint64_t now = now_ns(), clients = (uint64_t)settings->clients;
    worker->count_from_ns = client->begin_ns = now + settings->warmup_ns;
    worker->end_ns = settings->requests > 0 ? UINT64_MAX : worker->count_from_ns + settings->run_ns;
    worker->left = settings->requests > 0
                       ? settings->requests / clients + ((uint64_t)number < settings->requests % clients ? 1 : 0)
                       : UINT64_MAX;
    if (atomic_load(&start->go))
      serve(worker);
    code = client->failures > 0 ? TOOL_REFUSED : TOOL_OK;
  }
  gemmd_disconnect(worker->session);
  free(worker);
  return code;
}
