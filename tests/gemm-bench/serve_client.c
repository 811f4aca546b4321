#include "check.h"
#include "clock.h"
#include "serve.h"
#include "tensors.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* One product that may be in flight, with tensors of its own. */
struct slot {
  gemmd_product product;
  int weight;
  uint64_t ticket; /* 0: free */
  uint64_t asked_ns;
};

struct worker {
  const struct tool_call *call;
  const struct serve_settings *settings;
  struct serve_client *client;
  gemmd_session *session;
  gemmd_weight *weights[MIX_MOST];
  gemmd_plan *plan; /* NULL: products */
  struct tensors tensors;
  void *alone_x, *alone_y; /* in host memory: for the check */
  uint64_t random;
  uint64_t next_ns; /* with a rate: when the next product is to be asked for */
  struct slot slots[SERVE_IN_FLIGHT_MAX];
  int in_flight;
  uint64_t count_from_ns; /* products asked for from here on count */
  uint64_t end_ns;        /* nothing is asked for after that; UINT64_MAX: `left` rules */
  uint64_t left;          /* counted products still to ask for */
};

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

/* The largest tensors that a product of the mix needs, in bytes. */
struct sizes {
  size_t x, y, scales;
};

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

static struct sizes sizes_of(const struct serve_settings *settings) {
  struct sizes sizes = {0};
  for (int i = 0; i < settings->mix.weight_count; i++) {
    const gemmd_weight_info *info = &settings->mix.weights[i];
    size_t m = settings->mix.rows_most, columns = info->scale == GEMMD_SCALE_BLOCK ? ((size_t)info->k + 127) / 128 : 1;
    sizes.x = larger(sizes.x, m * (size_t)info->k * type_bytes(settings->x_type));
    sizes.y = larger(sizes.y, m * (size_t)info->n * type_bytes(settings->y_type));
    sizes.scales = larger(sizes.scales, m * columns * sizeof(float));
  }
  return sizes;
}

/* y holds NaN until it is written. */
static bool take_tensors(struct worker *worker, struct slot *slot, uint64_t *state) {
  const struct serve_settings *settings = worker->settings;
  struct sizes sizes = sizes_of(settings);
  void *x = tensors_take(&worker->tensors, sizes.x), *y = tensors_take(&worker->tensors, sizes.y);
  if (x == NULL || y == NULL)
    return false;
  random_fill(worker->alone_x, settings->x_type, sizes.x / type_bytes(settings->x_type), state);
  memset(worker->alone_y, 0xff, sizes.y);
  if (!tensors_write(&worker->tensors, x, worker->alone_x, sizes.x) ||
      !tensors_write(&worker->tensors, y, worker->alone_y, sizes.y))
    return false;
  slot->product = (gemmd_product){.x = x, .x_type = settings->x_type, .y = y, .y_type = settings->y_type};
  if ((settings->x_type != GEMMD_INT8 && settings->x_type != GEMMD_E4M3) || settings->y_type == GEMMD_S32)
    return true;
  float *scale = gemmd_alloc(worker->session, sizes.scales);
  for (size_t i = 0; scale != NULL && i < sizes.scales / sizeof *scale; i++)
    scale[i] = 1.0f / 128;
  slot->product.x_scale = scale;
  return scale != NULL;
}

/* Bytes of x and y of all slots. */
static size_t tensor_bytes(const struct serve_settings *settings) {
  struct sizes sizes = sizes_of(settings);
  return (size_t)settings->in_flight * (tensors_bytes(sizes.x) + tensors_bytes(sizes.y));
}

/* Bytes of shared memory for all slots and the check; what gemmd_alloc rounds up included. */
static size_t arena_bytes(const struct serve_settings *settings) {
  struct sizes sizes = sizes_of(settings);
  size_t scales = (size_t)settings->in_flight * tensors_bytes(sizes.scales);
  return (settings->gpu ? 0 : tensor_bytes(settings)) + scales + tensors_bytes(sizes.x) + tensors_bytes(sizes.y) +
         ((size_t)1 << 20);
}

static unsigned entries_for(int in_flight) {
  unsigned entries = 1;
  while (entries < (unsigned)in_flight)
    entries *= 2;
  return entries;
}

static int open_plan(struct worker *worker) {
  const struct mix *mix = &worker->settings->mix;
  gemmd_step steps[MIX_MOST];
  for (int i = 0; i < mix->weight_count; i++)
    steps[i] = (gemmd_step){.weight = worker->weights[i],
                            .y_type = worker->settings->y_type,
                            .activation = mix->steps[i].activation,
                            .gated = mix->steps[i].gated};
  return gemmd_plan_create(worker->session, steps, (unsigned)mix->weight_count, &worker->plan);
}

static enum tool_exit prepare(struct worker *worker, int number) {
  const struct serve_settings *settings = worker->settings;
  const gemmd_options options = {
      .arena_bytes = arena_bytes(settings), .entries = entries_for(settings->in_flight), .name = "gemm-bench"};
  enum tool_exit code = tool_connect(worker->call, &options, &worker->session);
  if (code != TOOL_OK)
    return code;
  for (int i = 0; i < settings->mix.weight_count; i++) {
    const char *name = settings->mix.names[i];
    int status = gemmd_weight_open(worker->session, name, &worker->weights[i]);
    if (status != GEMMD_OK)
      return tool_refused(worker->call, worker->session, status);
    const gemmd_weight_info *info = gemmd_weight_get_info(worker->weights[i]);
    if (info->n != settings->mix.weights[i].n || info->k != settings->mix.weights[i].k)
      return tool_cannot(worker->call, GEMMD_WRONG_STATE, "%s was replaced by a weight of another size", name);
  }
  int status = settings->mix.plan ? open_plan(worker) : GEMMD_OK;
  if (status != GEMMD_OK)
    return tool_refused(worker->call, worker->session, status);
  code = tensors_open(worker->call, worker->session, settings->gpu ? tensor_bytes(settings) : 0, &worker->tensors);
  if (code != TOOL_OK)
    return code;
  struct sizes sizes = sizes_of(settings);
  worker->alone_x = gemmd_alloc(worker->session, sizes.x);
  worker->alone_y = gemmd_alloc(worker->session, sizes.y);
  bool room = worker->alone_x != NULL && worker->alone_y != NULL;
  uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(number + 1);
  for (int i = 0; i < settings->in_flight; i++) {
    if (!room || !take_tensors(worker, &worker->slots[i], &state))
      return tool_cannot(worker->call, GEMMD_NOMEM, "no room for %d products of M = %u in the session's shared memory",
                         settings->in_flight, settings->mix.rows_most);
  }
  worker->random = state;
  return TOOL_OK;
}

/* ---- asking */

/* In 0..1, both excluded. */
static double random_part(struct worker *worker) {
  return ((double)(random_next(&worker->random) >> 11) + 0.5) / (double)((uint64_t)1 << 53);
}

static bool may_ask(const struct worker *worker, uint64_t now) {
  return now < worker->count_from_ns || (now < worker->end_ns && worker->left > 0);
}

/* Says what failed first; the rest is counted. */
static void note_failure(struct worker *worker, int status) {
  if (worker->client->failures++ == 0)
    tool_refused(worker->call, worker->session, status);
}

/* `due_ns`: since when the product should have been asked for; its latency counts from there. A product of the warm-up
 * that fails counts as a failure too: it would be a lie to leave it out. */
static bool ask(struct worker *worker, struct slot *slot, uint64_t due_ns) {
  const struct mix *mix = &worker->settings->mix;
  slot->weight = mix->weight_count > 1 && !mix->plan ? mix_weight(mix, random_part(worker)) : 0;
  slot->product.m = mix->rows_count > 1 ? mix_rows(mix, random_part(worker)) : mix->rows[0];
  slot->asked_ns = due_ns;
  int status = worker->plan != NULL ? gemmd_plan_submit(worker->plan, &slot->product, &slot->ticket)
                                    : gemmd_submit(worker->weights[slot->weight], &slot->product, &slot->ticket);
  if (status != GEMMD_OK) {
    slot->ticket = 0;
    note_failure(worker, status);
    return false;
  }
  worker->in_flight++;
  if (due_ns >= worker->count_from_ns)
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
    client->rows += slot->product.m;
    client->end_ns = now;
  }
}

/* Waits for a product until `until_ns`. False where the session is of no more use. */
static bool take(struct worker *worker, uint64_t until_ns, struct slot **freed) {
  gemmd_result result = {0};
  *freed = NULL;
  int status;
  if (worker->settings->in_flight == 1) {
    result.ticket = worker->slots[0].ticket;
    result.status = gemmd_wait(worker->session, result.ticket, -1, &result);
    status = result.status != GEMMD_DISCONNECTED ? GEMMD_OK : GEMMD_DISCONNECTED;
  } else {
    status = gemmd_wait_any_until(worker->session, until_ns, &result);
    if (status == GEMMD_TIMEOUT)
      return true;
  }
  uint64_t now = clock_ns();
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
    uint64_t now = clock_ns();
    if (may_ask(worker, now) && !ask(worker, &worker->slots[i], now))
      return;
  }
  while (worker->in_flight > 0) {
    struct slot *slot;
    if (!take(worker, UINT64_MAX, &slot))
      return;
    if (worker->settings->pause_ns > 0)
      clock_sleep(worker->settings->pause_ns);
    uint64_t now = clock_ns();
    if (may_ask(worker, now) && !ask(worker, slot, now))
      return;
  }
}

/* ---- at a rate: what is due is asked for as soon as a slot is free, and has been waiting since it was due */

static void schedule_next(struct worker *worker) {
  double mean_ns = 1e9 * worker->settings->clients / worker->settings->rate;
  worker->next_ns += (uint64_t)(-log(random_part(worker)) * mean_ns);
}

/* Nothing can be asked for before next_ns: takes what is finished, or waits for either. */
static bool wait_for_something(struct worker *worker, bool full) {
  enum { SLEEP_LEAST_NS = 200000 };
  struct slot *slot;
  if (worker->in_flight > 0)
    return take(worker, full ? UINT64_MAX : worker->next_ns, &slot);
  uint64_t now = clock_ns(), left = worker->next_ns > now ? worker->next_ns - now : 0;
  if (left > SLEEP_LEAST_NS)
    clock_sleep_until(worker->next_ns - SLEEP_LEAST_NS / 2);
  else
    sched_yield();
  return true;
}

static void serve_at_rate(struct worker *worker) {
  prctl(PR_SET_TIMERSLACK, 1ul); /* what is due is not to wait for the usual 50 us of slack */
  worker->next_ns = clock_ns();
  schedule_next(worker);
  while (worker->in_flight > 0 || may_ask(worker, worker->next_ns)) {
    struct slot *slot = slot_of(worker, 0);
    bool ends = !may_ask(worker, worker->next_ns);
    if (!ends && slot != NULL && worker->next_ns <= clock_ns()) {
      if (!ask(worker, slot, worker->next_ns))
        return;
      schedule_next(worker);
    } else if (!wait_for_something(worker, ends || slot == NULL)) {
      return;
    }
  }
}

/* ---- whether y is right */

static size_t columns_of(const struct worker *worker, int weight) {
  const struct mix *mix = &worker->settings->mix;
  if (!mix->plan)
    return (size_t)mix->weights[weight].n;
  int last = mix->weight_count - 1;
  return (size_t)(mix->steps[last].gated ? mix->weights[last].n / 2 : mix->weights[last].n);
}

/* The slot's last product once more, from host memory and when nothing else of this client is under way. */
static int ask_alone(struct worker *worker, const struct slot *slot) {
  gemmd_product product = slot->product;
  product.x = worker->alone_x;
  product.y = worker->alone_y;
  return worker->plan != NULL ? gemmd_plan_run(worker->plan, &product)
                              : gemmd_matmul(worker->weights[slot->weight], &product);
}

static void check_slot(struct worker *worker, const struct slot *slot) {
  struct serve_client *client = worker->client;
  size_t columns = columns_of(worker, slot->weight), rows = slot->product.m;
  struct sizes sizes = sizes_of(worker->settings);
  void *y = malloc(sizes.y);
  if (y == NULL || !tensors_read(&worker->tensors, worker->alone_x, slot->product.x, sizes.x) ||
      !tensors_read(&worker->tensors, y, slot->product.y, sizes.y)) {
    tool_cannot(worker->call, GEMMD_SYSTEM, "y cannot be read back");
    client->failures++;
    free(y);
    return;
  }
  int status = ask_alone(worker, slot);
  if (status != GEMMD_OK) {
    note_failure(worker, status);
    free(y);
    return;
  }
  double off = check_difference(y, worker->alone_y, slot->product.y_type, rows, columns);
  client->checked++;
  client->difference = off > client->difference ? off : client->difference;
  if (!(off <= CHECK_DIFFERENCE_MOST) && client->failures++ == 0)
    tool_cannot(worker->call, GEMMD_INTERNAL, "y is wrong: a row is off by %.3g of its length", off);
  free(y);
}

/* A few of them: large products of many slots would take longer than the load. */
static void check(struct worker *worker) {
  enum { CHECKED_MOST = 4 };
  for (int i = 0; i < worker->settings->in_flight && i < CHECKED_MOST && worker->client->failures == 0; i++)
    if (worker->slots[i].product.m > 0)
      check_slot(worker, &worker->slots[i]);
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
    return tool_cannot(call, GEMMD_NOMEM, "out of memory");
  worker->call = call;
  worker->settings = settings;
  worker->client = client;
  enum tool_exit code = prepare(worker, number);
  if (code == TOOL_OK) {
    wait_for_start(ready, gate);
    uint64_t now = clock_ns(), clients = (uint64_t)settings->clients;
    worker->count_from_ns = client->begin_ns = now + settings->warmup_ns;
    worker->end_ns = settings->requests > 0 ? UINT64_MAX : worker->count_from_ns + settings->run_ns;
    worker->left = settings->requests > 0
                       ? settings->requests / clients + ((uint64_t)number < settings->requests % clients ? 1 : 0)
                       : UINT64_MAX;
    if (atomic_load(&start->go) && settings->rate > 0)
      serve_at_rate(worker);
    else if (atomic_load(&start->go))
      serve(worker);
    if (atomic_load(&start->go))
      check(worker);
    code = client->failures > 0 ? TOOL_REFUSED : TOOL_OK;
  }
  tensors_close(&worker->tensors);
  gemmd_disconnect(worker->session);
  free(worker);
  return code;
}
