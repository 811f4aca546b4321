#include "hostile.h"
#include "proto/clock.h"

#include "tests/support/system/nap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  PATTERN = 65521, /* elements, a prime: rows of any length differ */
  LOOKED_AT = 16,
  STEPS_MOST = 16
};

static const struct {
  const char *word;
  int number;
} kinds[] = {{"tensors", HOSTILE_TENSORS}, {"weight", HOSTILE_WEIGHT}, {"plan", HOSTILE_PLAN}},
  formats[] = {{"int8", GEMMD_FORMAT_INT8}, {"fp8", GEMMD_FORMAT_FP8},   {"int2", GEMMD_FORMAT_INT2},
               {"f16", GEMMD_FORMAT_F16},   {"bf16", GEMMD_FORMAT_BF16}, {"int2a8", GEMMD_FORMAT_INT2A8}},
  classes[] = {
      {"normal", GEMMD_PRIORITY_NORMAL}, {"urgent", GEMMD_PRIORITY_URGENT}, {"background", GEMMD_PRIORITY_BACKGROUND}};

#define FIND(list, text, out) find(list, sizeof(list) / sizeof *(list), text, out)

static bool find(const void *list, size_t count, const char *text, int *out) {
  const struct {
    const char *word;
    int number;
  } *words = list;
  for (size_t i = 0; i < count; i++)
    if (strcmp(words[i].word, text) == 0) {
      *out = words[i].number;
      return true;
    }
  return false;
}

static const char *const table[] = {
#include "tests/isolation/cases.inc"
};

bool hostile_read(size_t index, struct hostile_case *out) {
  char kind[16], format[16], class[16];
  long long m, n, k;
  int kind_number, format_number, class_number;
  if (index >= sizeof table / sizeof *table)
    return false;
  const char *line = table[index];
  *out = (struct hostile_case){.steps = 1};
  int words = sscanf(line, "%15s %15s %lldx%lldx%lld %15s %u %u", kind, format, &m, &n, &k, class, &out->in_flight,
                     &out->steps);
  if (words < 7 || !FIND(kinds, kind, &kind_number) || !FIND(formats, format, &format_number) ||
      !FIND(classes, class, &class_number) || out->steps < 1 || out->steps > STEPS_MOST) {
    fprintf(stderr, "the table has a line that cannot be read: %s\n", line);
    exit(1);
  }
  out->kind = (enum hostile_kind)kind_number;
  out->format = (enum gemmd_format)format_number;
  out->priority = (enum gemmd_priority)class_number;
  out->m = m;
  out->n = n;
  out->k = k;
  snprintf(out->line, sizeof out->line, "%s", line);
  return true;
}

double hostile_terms(const struct hostile_case *what) {
  return (double)what->m * (double)what->n * (double)what->k * what->steps * what->in_flight;
}

/* Of one product, with what aligns the next. */
static uint64_t y_bytes(const struct hostile_case *what) {
  return ((uint64_t)(what->m * what->n) * 4 + 255) / 256 * 256;
}

static bool is_bf16(const struct hostile_case *what) {
  return what->format == GEMMD_FORMAT_BF16;
}

uint64_t hostile_bytes(const struct hostile_case *what) {
  uint64_t x = (uint64_t)(what->m * what->k) * 2, w = (uint64_t)(what->n * what->k) * 2;
  uint64_t y = y_bytes(what) * what->in_flight;
  return x + y + (what->kind == HOSTILE_TENSORS ? w : 0) + (1 << 20);
}

/* ---- data */

/* The pattern, made once. */
static const double *pattern(void) {
  static const double values[] = {-1, -0.5, 0, 0.5, 1};
  static double made[PATTERN];
  static bool there;
  for (uint64_t i = 0; i < PATTERN && !there; i++) {
    uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
    made[i] = values[(mixed >> 40) % 5];
  }
  there = true;
  return made;
}

static uint16_t bits_of(double value, bool bf16) {
  uint16_t bits = bf16                            ? (value == 0.5 || value == -0.5 ? 0x3f00 : 0x3f80)
                  : value == 0.5 || value == -0.5 ? 0x3800
                                                  : 0x3c00;
  return value == 0 ? 0 : (uint16_t)(bits | (value < 0 ? 0x8000 : 0));
}

/* Element i is that of the pattern at i + shift. */
static void fill(uint16_t *to, uint64_t count, uint64_t shift, bool bf16) {
  for (uint64_t i = 0; i < count && i < PATTERN; i++)
    to[i] = bits_of(pattern()[(i + shift) % PATTERN], bf16);
  for (uint64_t done = PATTERN; done < count; done *= 2)
    memcpy(to + done, to, (done < count - done ? done : count - done) * sizeof *to);
}

enum { SHIFT_W = 17 };

/* A safetensors file of one tensor "w" [n, k]. */
static int weight_file(const struct hostile_case *what) {
  char head[160];
  uint64_t bytes = (uint64_t)(what->n * what->k) * 2;
  int fd = memfd_create("hostile", MFD_CLOEXEC);
  uint64_t length = (uint64_t)snprintf(
      head + 8, sizeof head - 8, "{\"w\":{\"dtype\":\"%s\",\"shape\":[%lld,%lld],\"data_offsets\":[0,%llu]}}",
      is_bf16(what) ? "BF16" : "F16", (long long)what->n, (long long)what->k, (unsigned long long)bytes);
  while (length % 8 != 0)
    head[8 + length++] = ' ';
  memcpy(head, &length, 8);
  if (fd < 0 || ftruncate(fd, (off_t)(8 + length + bytes)) != 0)
    return -1;
  uint8_t *file = mmap(NULL, 8 + length + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (file == MAP_FAILED)
    return -1;
  memcpy(file, head, 8 + length);
  fill((uint16_t *)(void *)(file + 8 + length), bytes / 2, SHIFT_W, is_bf16(what));
  munmap(file, 8 + length + bytes);
  return fd;
}

/* ---- asking */

gemmd_session *hostile_join(const char *socket, uid_t uid, const struct hostile_case *what) {
  gemmd_session *session = NULL;
  gemmd_options options = {.arena_bytes = hostile_bytes(what), .name = "hostile"};
  bool other = uid != geteuid() && geteuid() == 0 && seteuid(uid) == 0;
  int status = gemmd_connect(&session, socket, &options);
  if (other && seteuid(0) != 0)
    abort();
  if (status == GEMMD_OK)
    return session;
  fprintf(stderr, "%s: %s\n", what->line, gemmd_error(session));
  gemmd_disconnect(session);
  return NULL;
}

/* One case in the making. */
struct attack {
  gemmd_session *session;
  const struct hostile_case *what;
  uint16_t *x, *w;
  uint8_t *y; /* [in_flight]: [m][n] f32, y_bytes apart */
  gemmd_weight *weight;
  gemmd_plan *plan;
  uint64_t tickets[64];
  bool ended[64];
  struct hostile_result *out;
};

static bool refuse(struct attack *attack, int status) {
  attack->out->status = status;
  snprintf(attack->out->why, sizeof attack->out->why, "%s", gemmd_error(attack->session));
  return false;
}

static bool load(struct attack *attack) {
  const struct hostile_case *what = attack->what;
  char name[64];
  snprintf(name, sizeof name, "hostile.%ld", (long)getpid());
  gemmd_load request = {.name = name, .tensor = "w", .format = what->format, .device = -1, .replace = true};
  int fd = weight_file(what);
  int status = fd < 0 ? GEMMD_NOMEM : gemmd_weight_load(attack->session, fd, &request, NULL);
  if (fd >= 0)
    close(fd);
  if (status == GEMMD_OK)
    status = gemmd_weight_open(attack->session, name, &attack->weight);
  if (status == GEMMD_OK)
    status = gemmd_weight_unload(attack->session, name, NULL);
  gemmd_step steps[STEPS_MOST];
  for (unsigned i = 0; i < what->steps; i++)
    steps[i] = (gemmd_step){.weight = attack->weight,
                            .y_type = i + 1 < what->steps ? is_bf16(what) ? GEMMD_BF16 : GEMMD_F16 : GEMMD_F32};
  if (status == GEMMD_OK && what->kind == HOSTILE_PLAN)
    status = gemmd_plan_create(attack->session, steps, what->steps, &attack->plan);
  return status == GEMMD_OK || refuse(attack, status);
}

static bool lay_out(struct attack *attack) {
  const struct hostile_case *what = attack->what;
  attack->x = gemmd_alloc(attack->session, (size_t)(what->m * what->k) * 2);
  attack->y = gemmd_alloc(attack->session, y_bytes(what) * what->in_flight);
  if (what->kind == HOSTILE_TENSORS)
    attack->w = gemmd_alloc(attack->session, (size_t)(what->n * what->k) * 2);
  if (attack->x == NULL || attack->y == NULL || (what->kind == HOSTILE_TENSORS && attack->w == NULL))
    return refuse(attack, GEMMD_NOMEM);
  fill(attack->x, (uint64_t)(what->m * what->k), 0, is_bf16(what));
  if (attack->w != NULL)
    fill(attack->w, (uint64_t)(what->n * what->k), SHIFT_W, is_bf16(what));
  return what->kind == HOSTILE_TENSORS || load(attack);
}

static bool submit(struct attack *attack, unsigned index) {
  const struct hostile_case *what = attack->what;
  gemmd_product product = {.m = (uint32_t)what->m,
                           .x = attack->x,
                           .x_type = is_bf16(what) ? GEMMD_BF16 : GEMMD_F16,
                           .y = attack->y + index * y_bytes(what),
                           .y_type = GEMMD_F32,
                           .priority = what->priority};
  gemmd_tensor w = {.data = attack->w, .n = (uint32_t)what->n, .k = (uint32_t)what->k};
  int status = what->kind == HOSTILE_TENSORS
                   ? gemmd_tensors_submit(attack->session, &w, &product, &attack->tickets[index])
               : what->kind == HOSTILE_PLAN ? gemmd_plan_submit(attack->plan, &product, &attack->tickets[index])
                                            : gemmd_submit(attack->weight, &product, &attack->tickets[index]);
  return status == GEMMD_OK || refuse(attack, status);
}

/* ---- what came */

static bool element_right(const struct attack *attack, unsigned index, int64_t row, int64_t column) {
  const struct hostile_case *what = attack->what;
  const double *values = pattern();
  uint64_t x = (uint64_t)(row * what->k) % PATTERN, w = ((uint64_t)(column * what->k) + SHIFT_W) % PATTERN;
  double sum = 0, size = 0;
  for (int64_t k = 0; k < what->k; k++) {
    double term = values[x] * values[w];
    sum += term;
    size += fabs(term);
    x = x + 1 < PATTERN ? x + 1 : 0;
    w = w + 1 < PATTERN ? w + 1 : 0;
  }
  float y = ((const float *)(const void *)(attack->y + index * y_bytes(what)))[row * what->n + column];
  const char *backend = getenv("GEMMD_TEST_BACKEND");
  bool exact = backend == NULL || strcmp(backend, "cpu") == 0; /* cuBLASLt's long sums, see NUMERICS.md */
  bool right = exact ? (double)y == sum : fabs((double)y - sum) <= 5e-4 * size;
  if (!right)
    snprintf(attack->out->why, sizeof attack->out->why, "y[%lld][%lld] is %.9g, not %.9g (of magnitudes %.9g)",
             (long long)row, (long long)column, (double)y, sum, size);
  return right;
}

static bool product_right_there(const struct attack *attack, unsigned index) {
  const struct hostile_case *what = attack->what;
  if (what->kind == HOSTILE_PLAN || (what->format != GEMMD_FORMAT_F16 && what->format != GEMMD_FORMAT_BF16))
    return true;
  for (int64_t i = 0; i < LOOKED_AT; i++) /* corners, and what lies between */
    if (!element_right(attack, index, (what->m - 1) * (i % 4) / 3, (what->n - 1) * (i / 4) / 3))
      return false;
  return true;
}

static void take(struct attack *attack, unsigned index, int status) {
  if (status == GEMMD_CANCELLED) {
    attack->out->dropped++;
  } else if (status != GEMMD_OK) {
    (void)refuse(attack, status);
  } else {
    attack->out->ended++;
    attack->out->wrong |= !product_right_there(attack, index);
  }
}

static void take_all(struct attack *attack, unsigned count, int64_t until_ms) {
  for (unsigned i = 0; i < count; i++) {
    int64_t left = until_ms - (int64_t)(clock_ns() / 1000000);
    int status = gemmd_wait(attack->session, attack->tickets[i], left > 0 ? (int)left : 0, NULL);
    if (status == GEMMD_TIMEOUT)
      status = gemmd_cancel(attack->session, attack->tickets[i]) == GEMMD_OK
                   ? gemmd_wait(attack->session, attack->tickets[i], -1, NULL)
                   : status;
    take(attack, i, status);
  }
}

bool hostile_run(gemmd_session *session, const struct hostile_case *what, int patience_ms, struct hostile_result *out) {
  struct attack attack = {.session = session, .what = what, .out = out};
  *out = (struct hostile_result){.status = GEMMD_OK};
  bool asked = what->in_flight <= sizeof attack.tickets / sizeof *attack.tickets && lay_out(&attack);
  unsigned count = 0;
  int64_t until_ms = (int64_t)(clock_ns() / 1000000) + patience_ms;
  while (asked && count < what->in_flight && submit(&attack, count))
    count++;
  take_all(&attack, count, until_ms);
  gemmd_plan_free(attack.plan);
  gemmd_weight_close(attack.weight);
  gemmd_free(session, attack.x);
  gemmd_free(session, attack.w);
  gemmd_free(session, attack.y);
  return asked && count == what->in_flight;
}
