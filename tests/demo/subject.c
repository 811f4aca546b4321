#include "subject.h"

#include "random.h"
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_LEAST 16   /* below that, an error tells little */
#define SIDE_MOST 65536 /* of a matrix that the demo takes */
#define ELEMENTS_MOST ((int64_t)1 << 24)
#define OTHERS_MOST 6   /* matrices of a file whose names say nothing */
#define WORD_FIRST 1996 /* in BERT's vocabulary, whole words begin here: "the", "of", "and", ... */
#define WORD_STEP 37

/* ---- choosing */

static bool fits(const struct tensor *tensor) {
  return tensor->type != TENSOR_OTHER && tensor->rows >= SIDE_LEAST && tensor->columns >= SIDE_LEAST &&
         tensor->rows <= SIDE_MOST && tensor->columns <= SIDE_MOST && tensor->rows * tensor->columns <= ELEMENTS_MOST &&
         strlen(tensor->name) < 240; /* ".int8" follows */
}

static size_t choose_known(const struct checkpoint *checkpoint, const struct tensor **chosen) {
  static const char *const parts[] = {"attention.self.query",   "attention.self.key", "attention.self.value",
                                      "attention.output.dense", "intermediate.dense", "output.dense"};
  static const int layers[] = {0, 5};
  size_t count = 0;
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    for (size_t j = 0; j < sizeof parts / sizeof *parts; j++) {
      char name[96];
      snprintf(name, sizeof name, "encoder.layer.%d.%s.weight", layers[i], parts[j]);
      const struct tensor *tensor = checkpoint_find(checkpoint, name);
      if (tensor != NULL && fits(tensor))
        chosen[count++] = tensor;
    }
  }
  return count;
}

static int larger_first(const void *left, const void *right) {
  const struct tensor *a = *(const struct tensor *const *)left, *b = *(const struct tensor *const *)right;
  int64_t a_size = a->rows * a->columns, b_size = b->rows * b->columns;
  return a_size != b_size ? (a_size < b_size) - (a_size > b_size) : strcmp(a->name, b->name);
}

static size_t choose_largest(const struct checkpoint *checkpoint, const struct tensor **chosen) {
  const struct tensor **all = calloc(checkpoint->count + 1, sizeof *all);
  size_t count = 0;
  for (size_t i = 0; all != NULL && i < checkpoint->count; i++) {
    if (fits(&checkpoint->tensors[i]) && strstr(checkpoint->tensors[i].name, "embed") == NULL)
      all[count++] = &checkpoint->tensors[i];
  }
  if (count > 0)
    qsort(all, count, sizeof *all, larger_first);
  if (count > OTHERS_MOST)
    count = OTHERS_MOST;
  for (size_t i = 0; i < count; i++)
    chosen[i] = all[i];
  free(all);
  return count;
}

size_t subject_choose(const struct checkpoint *checkpoint, const struct tensor *chosen[SUBJECTS_MAX]) {
  size_t count = choose_known(checkpoint, chosen);
  return count > 0 ? count : choose_largest(checkpoint, chosen);
}

/* ---- activations */

static const struct tensor *find_embeddings(const struct checkpoint *checkpoint) {
  static const char *const suffixes[] = {"word_embeddings.weight", "embed_tokens.weight", "tok_embeddings.weight",
                                         "wte.weight"};
  const struct tensor *found = NULL;
  for (size_t i = 0; found == NULL && i < sizeof suffixes / sizeof *suffixes; i++)
    found = checkpoint_find_suffix(checkpoint, suffixes[i]);
  return found != NULL && found->rows > 0 ? found : NULL;
}

static void take_words(const struct tensor *embeddings, int64_t m, float *x) {
  for (int64_t i = 0; i < m; i++)
    tensor_row(embeddings, (WORD_FIRST + i * WORD_STEP) % embeddings->rows, x + i * embeddings->columns);
}

static float gelu(double value) {
  return (float)(0.5 * value * (1 + erf(value / sqrt(2))));
}

/* The matrix whose outputs are the inputs of a BERT layer's second feed-forward matrix; NULL for other matrices. */
static const struct tensor *find_first_half(const struct checkpoint *checkpoint, const struct tensor *tensor,
                                            const char *end) {
  static const char suffix[] = ".output.dense.weight";
  size_t length = strlen(tensor->name);
  if (length < sizeof suffix || strcmp(tensor->name + length - strlen(suffix), suffix) != 0)
    return NULL;
  char name[256];
  snprintf(name, sizeof name, "%.*s.intermediate.dense.%s", (int)(length - strlen(suffix)), tensor->name, end);
  return checkpoint_find(checkpoint, name);
}

/* gelu(words * first^T + bias): what the layer's second matrix would get if words came to it directly. */
static bool compute_intermediate(const struct tensor *words, const struct tensor *first, const struct tensor *bias,
                                 int64_t m, float *x) {
  int64_t n = first->rows, k = first->columns;
  float *rows = malloc((size_t)(m * k) * sizeof *rows), *w = tensor_values(first);
  float *shift = calloc((size_t)n, sizeof *shift);
  double *y = malloc((size_t)(m * n) * sizeof *y);
  bool ok = rows != NULL && w != NULL && shift != NULL && y != NULL;
  if (ok) {
    take_words(words, m, rows);
    if (bias != NULL && bias->rows == 1 && bias->columns == n)
      tensor_row(bias, 0, shift);
    reference_product(rows, w, m, n, k, y);
    for (int64_t i = 0; i < m * n; i++)
      x[i] = gelu(y[i] + (double)shift[i % n]);
  }
  free(rows);
  free(w);
  free(shift);
  free(y);
  return ok;
}

static bool fill_x(struct subject *subject, const struct checkpoint *checkpoint) {
  const struct tensor *words = find_embeddings(checkpoint);
  if (words != NULL && words->columns == subject->k) {
    subject->source = "word embeddings";
    take_words(words, subject->m, subject->x);
    return true;
  }
  const struct tensor *first = find_first_half(checkpoint, subject->tensor, "weight");
  if (words != NULL && first != NULL && first->rows == subject->k && first->columns == words->columns) {
    subject->source = "gelu(word embeddings * intermediate^T)";
    return compute_intermediate(words, first, find_first_half(checkpoint, subject->tensor, "bias"), subject->m,
                                subject->x);
  }
  subject->source = "random normal";
  uint64_t state = 7919 * (uint64_t)subject->k + 1;
  for (int64_t i = 0; i < subject->m * subject->k; i++)
    subject->x[i] = random_normal(&state);
  return true;
}

static bool is_minilm(const struct checkpoint *checkpoint) {
  const struct tensor *words = find_embeddings(checkpoint);
  const struct tensor *feed = checkpoint_find(checkpoint, "encoder.layer.5.intermediate.dense.weight");
  return words != NULL && words->columns == 384 && feed != NULL && feed->rows == 1536 && feed->columns == 384;
}

bool subject_make(struct subject *subject, const struct checkpoint *checkpoint, const struct tensor *tensor) {
  int64_t m = SUBJECT_ROWS, n = tensor->rows, k = tensor->columns;
  *subject = (struct subject){.tensor = tensor, .m = m, .n = n, .k = k, .known = is_minilm(checkpoint)};
  subject->w = tensor_values(tensor);
  subject->x = malloc((size_t)(m * k) * sizeof *subject->x);
  subject->y = malloc((size_t)(m * n) * sizeof *subject->y);
  if (subject->w == NULL || subject->x == NULL || subject->y == NULL || !fill_x(subject, checkpoint)) {
    subject_free(subject);
    return false;
  }
  reference_product(subject->x, subject->w, m, n, k, subject->y);
  return true;
}

void subject_free(struct subject *subject) {
  free(subject->w);
  free(subject->x);
  free(subject->y);
  *subject = (struct subject){0};
}
