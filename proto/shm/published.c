#include "published.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

enum { TRIES = 64 }; /* to read a row that is being written; a writer that has died may have left it so */

struct header {
  uint32_t magic, version, rows, row_bytes;
  _Atomic uint64_t generation;
  uint8_t reserved[PUBLISHED_HEADER_BYTES - 24];
};

/* What travels in a row behind its sequence. */
struct content {
  uint32_t kind, reserved;
  uint64_t kernel_ns, built_in_ns;
  char shape[128], identity[128], kernel[256], built_in[256];
};

enum { WORDS = sizeof(struct content) / sizeof(uint64_t) };

/* Odd while it is written. Words, so that no reader sees half of one. */
struct row {
  _Atomic uint64_t sequence;
  _Atomic uint64_t words[WORDS];
  uint8_t reserved[PUBLISHED_ROW_BYTES - (WORDS + 1) * sizeof(uint64_t)];
};

_Static_assert(sizeof(struct header) == PUBLISHED_HEADER_BYTES, "header of the table");
_Static_assert(sizeof(struct row) == PUBLISHED_ROW_BYTES, "row of the table");
_Static_assert(sizeof(struct content) == WORDS * sizeof(uint64_t), "a row is whole words");
_Static_assert(offsetof(struct content, shape) == 24, "layout of a row");

uint64_t published_bytes(uint32_t rows) {
  return PUBLISHED_HEADER_BYTES + (uint64_t)rows * PUBLISHED_ROW_BYTES;
}

static struct row *row_at(void *memory, uint32_t index) {
  return (struct row *)((uint8_t *)memory + PUBLISHED_HEADER_BYTES) + index;
}

/* Where the `probe`th place of a shape is. */
static uint32_t place_of(const char *shape, uint32_t probe, uint32_t rows) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *shape != '\0'; shape++)
    hash = (hash ^ (uint8_t)*shape) * 0x100000001b3u;
  return (uint32_t)((hash ^ hash >> 32) + probe) & (rows - 1);
}

/* ---- reading */

/* False where it is being written whenever it is looked at. */
static bool row_read(const struct row *row, struct content *out) {
  uint64_t words[WORDS];
  for (int i = 0; i < TRIES; i++) {
    uint64_t before = atomic_load_explicit(&row->sequence, memory_order_acquire);
    if (before & 1)
      continue;
    for (size_t w = 0; w < WORDS; w++)
      words[w] = atomic_load_explicit(&row->words[w], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&row->sequence, memory_order_relaxed) != before)
      continue;
    memcpy(out, words, sizeof words);
    return true;
  }
  return false;
}

static void copy_text(char *to, const char *from, size_t bytes) {
  memcpy(to, from, bytes);
  to[bytes - 1] = '\0';
}

static bool content_take(const struct content *content, struct published_row *out) {
  if (content->kind < PUBLISHED_BUILT_IN || content->kind > PUBLISHED_COMPILED)
    return false;
  *out = (struct published_row){
      .kind = (enum published_kind)content->kind, .kernel_ns = content->kernel_ns, .built_in_ns = content->built_in_ns};
  copy_text(out->shape, content->shape, sizeof out->shape);
  copy_text(out->identity, content->identity, sizeof out->identity);
  copy_text(out->kernel, content->kernel, sizeof out->kernel);
  copy_text(out->built_in, content->built_in, sizeof out->built_in);
  return true;
}

enum status published_open(struct published *out, const void *memory, uint64_t bytes, struct error *error) {
  struct header header;
  if (bytes < sizeof header)
    return error_set(error, STATUS_PROTOCOL, "a table of kernels has at least %zu bytes, got %llu", sizeof header,
                     (unsigned long long)bytes);
  memcpy(&header, memory, sizeof header);
  if (header.magic != PUBLISHED_MAGIC)
    return error_set(error, STATUS_PROTOCOL, "the memory is no table of kernels");
  if (header.version != PUBLISHED_VERSION || header.row_bytes != PUBLISHED_ROW_BYTES)
    return error_set(error, STATUS_VERSION, "the table of kernels is of version %u, this library reads %d",
                     header.version, PUBLISHED_VERSION);
  if (header.rows < PUBLISHED_PROBES || header.rows > PUBLISHED_ROWS_MOST || (header.rows & (header.rows - 1)) != 0 ||
      published_bytes(header.rows) > bytes)
    return error_set(error, STATUS_PROTOCOL, "a table of %u rows does not lie in %llu bytes", header.rows,
                     (unsigned long long)bytes);
  *out = (struct published){.memory = memory, .rows = header.rows};
  return STATUS_OK;
}

uint64_t published_generation(const struct published *published) {
  return atomic_load_explicit(&((const struct header *)(const void *)published->memory)->generation,
                              memory_order_acquire);
}

bool published_at(const struct published *published, uint32_t index, struct published_row *out) {
  const struct row *rows = (const struct row *)(const void *)(published->memory + PUBLISHED_HEADER_BYTES);
  struct content content;
  return index < published->rows && row_read(&rows[index], &content) && content_take(&content, out);
}

bool published_find(const struct published *published, const char *shape, struct published_row *out) {
  for (uint32_t probe = 0; probe < PUBLISHED_PROBES; probe++)
    if (published_at(published, place_of(shape, probe, published->rows), out) && strcmp(out->shape, shape) == 0)
      return true;
  return false;
}

/* ---- writing */

void published_init(void *memory, uint32_t rows) {
  struct header *header = memory;
  header->version = PUBLISHED_VERSION;
  header->rows = rows;
  header->row_bytes = PUBLISHED_ROW_BYTES;
  header->magic = PUBLISHED_MAGIC;
}

static void row_write(void *memory, uint32_t index, const struct content *content) {
  struct row *row = row_at(memory, index);
  uint64_t words[WORDS], sequence = atomic_load_explicit(&row->sequence, memory_order_relaxed);
  memcpy(words, content, sizeof words);
  atomic_store_explicit(&row->sequence, sequence + 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
  for (size_t w = 0; w < WORDS; w++)
    atomic_store_explicit(&row->words[w], words[w], memory_order_relaxed);
  atomic_store_explicit(&row->sequence, sequence + 2, memory_order_release);
  atomic_fetch_add_explicit(&((struct header *)memory)->generation, 1, memory_order_release);
}

/* The place of the shape; else one that is free, or -1. */
static int64_t place_find(void *memory, const char *shape, bool *there) {
  const struct published table = {.memory = memory, .rows = ((struct header *)memory)->rows};
  struct published_row row;
  int64_t empty = -1;
  *there = false;
  for (uint32_t probe = 0; probe < PUBLISHED_PROBES; probe++) {
    uint32_t place = place_of(shape, probe, table.rows);
    bool used = published_at(&table, place, &row);
    if (used && strcmp(row.shape, shape) == 0) {
      *there = true;
      return place;
    }
    if (!used && empty < 0)
      empty = place;
  }
  return empty;
}

static void text_put(char *to, const char *from, size_t bytes) {
  memcpy(to, from, strnlen(from, bytes - 1));
}

void published_put(void *memory, const struct published_row *row) {
  struct content content;
  bool there;
  memset(&content, 0, sizeof content);
  content.kind = row->kind;
  content.kernel_ns = row->kernel_ns;
  content.built_in_ns = row->built_in_ns;
  text_put(content.shape, row->shape, sizeof content.shape);
  text_put(content.identity, row->identity, sizeof content.identity);
  text_put(content.kernel, row->kernel, sizeof content.kernel);
  text_put(content.built_in, row->built_in, sizeof content.built_in);
  int64_t place = place_find(memory, content.shape, &there);
  if (place < 0) /* one of them goes: which one changes with each that comes */
    place = place_of(content.shape, (uint32_t)(atomic_load(&((struct header *)memory)->generation) % PUBLISHED_PROBES),
                     ((struct header *)memory)->rows);
  row_write(memory, (uint32_t)place, &content);
}

void published_remove(void *memory, const char *shape) {
  static const struct content nothing;
  bool there;
  int64_t place = place_find(memory, shape, &there);
  if (there)
    row_write(memory, (uint32_t)place, &nothing);
}
