/* One line for a model: what gemmd has of it, and what stays where it was. Under the device's lock, but for
 * report_left, which has one of its own. */
#include "gemmd_ggml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct left {
  char name[GGML_MAX_NAME];
  enum ggml_type type;
};

static struct {
  unsigned taken[TYPES], lent, refused;
  uint64_t bytes;
  double off; /* the largest */
} told;

static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static struct left *left; /* owned; a weight once, however often ggml asks */
static size_t left_count, left_capacity;
static bool coming;

void report_left(const struct ggml_tensor *weight) {
  pthread_mutex_lock(&left_lock);
  bool known = weight->name[0] == '\0';
  for (size_t i = 0; i < left_count && !known; i++)
    known = strcmp(left[i].name, weight->name) == 0;
  if (!known && left_count == left_capacity) {
    struct left *grown = realloc(left, (left_capacity * 2 + 64) * sizeof *grown);
    known = grown == NULL;
    left = grown != NULL ? grown : left;
    left_capacity = grown != NULL ? left_capacity * 2 + 64 : left_capacity;
  }
  if (!known) {
    left[left_count].type = weight->type;
    memcpy(left[left_count++].name, weight->name, GGML_MAX_NAME);
  }
  pthread_mutex_unlock(&left_lock);
}

void report_coming(void) {
  pthread_mutex_lock(&left_lock);
  coming = true;
  pthread_mutex_unlock(&left_lock);
}

void report_begin(void) {
  pthread_mutex_lock(&left_lock);
  bool nothing = !coming && left_count > 0;
  pthread_mutex_unlock(&left_lock);
  if (nothing)
    report_print();
}

void report_taken(const struct ggml_tensor *weight, uint64_t bytes, bool lent, double off) {
  told.taken[weight->type]++;
  told.bytes += bytes;
  told.lent += lent;
  told.off = off > told.off ? off : told.off;
}

void report_refused(const struct ggml_tensor *weight, const char *why) {
  fprintf(stderr, "gemmd: %s: %s\n", weight->name, why);
  told.refused++;
}

static void list(FILE *out, const unsigned counts[TYPES]) {
  const char *between = "";
  for (int type = 0; type < TYPES; type++) {
    if (counts[type] == 0)
      continue;
    fprintf(out, "%s%u %s", between, counts[type], ggml_type_name((enum ggml_type)type));
    if (counts == told.taken && type == GGML_TYPE_Q8_0)
      fprintf(out, " as INT8 with a scale a row, off by %.2g %% at most", told.off * 100);
    else if (counts == told.taken && type == GGML_TYPE_TQ2_0)
      fprintf(out, " as INT2 with the same codes and scales");
    else if (counts == told.taken && type == GGML_TYPE_Q4_0)
      fprintf(out, " as INT4 with the same codes and scales");
    between = ", ";
  }
}

void report_print(void) {
  unsigned count = 0, counts[TYPES] = {0};
  for (int type = 0; type < TYPES; type++)
    count += told.taken[type];
  fprintf(stderr, "gemmd: has %u weights", count);
  if (count > 0) {
    fprintf(stderr, ", %.1f MiB (", (double)told.bytes / (1 << 20));
    list(stderr, told.taken);
    fprintf(stderr, "); products of %u in this process, of %u by gemmd's worker", told.lent, count - told.lent);
  }
  fprintf(stderr, "; ");
  if (told.refused > 0)
    fprintf(stderr, "%u refused; ", told.refused);
  pthread_mutex_lock(&left_lock);
  for (size_t i = 0; i < left_count; i++)
    counts[left[i].type]++;
  fprintf(stderr, "%zu stay with the CPU%s", left_count, left_count > 0 ? " (" : "");
  list(stderr, counts);
  fprintf(stderr, "%s\n", left_count > 0 ? ")" : "");
  left_count = 0;
  coming = false;
  pthread_mutex_unlock(&left_lock);
  memset(&told, 0, sizeof told);
}
