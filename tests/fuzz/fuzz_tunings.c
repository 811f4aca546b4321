/* What is kept of tunings, and what users type: shapes, kernels, an entry's file, the note of a kernel on trial. What
 * is taken is written as it was read, and an entry that is taken is taken again after it was saved. */
#include "daemon/worker/tune/record/tune_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct variant_family family = {
    .name = "small",
    .count = 2,
    .parameters = {{"block", "of rows", 16, 512, 16, 128}, {"stages", "under way", 1, 8, 1, 4}}};
static const struct variant_family *const families[] = {&variant_plain, &family, NULL};
static const char shape[] = "int8-row-4096x300-bf16-f32-f16-m64";

static void check_texts(const char *text) {
  char again[VARIANT_TEXT_BYTES];
  struct variant_problem problem;
  struct variant variant, back;
  struct error error;
  if (variant_problem_parse(text, &problem, &error) == STATUS_OK &&
      strcmp(variant_problem_text(&problem, again), text) != 0)
    abort();
  if (variant_parse(families, text, &variant, &error) == STATUS_OK &&
      (variant_parse(families, variant_text(&variant, again), &back, &error) != STATUS_OK ||
       !variant_equal(&variant, &back)))
    abort();
}

static void write_file(const struct tune_db *db, const char *name, const uint8_t *data, size_t size) {
  char path[640];
  snprintf(path, sizeof path, "%s/%s", db->folder, name);
  FILE *file = fopen(path, "w");
  if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
    abort();
}

static void check_entry(const struct tune_db *db, const uint8_t *data, size_t size) {
  static struct book_entry entry, again;
  struct error error;
  memset(&entry, 0, sizeof entry);
  memset(&again, 0, sizeof again);
  if (variant_problem_parse(shape, &entry.problem, &error) != STATUS_OK)
    abort();
  again.problem = entry.problem;
  write_file(db, "int8-row-4096x300-bf16-f32-f16-m64.json", data, size);
  if (!tune_db_load(db, &entry))
    return;
  if (tune_db_save(db, &entry, &error) != STATUS_OK || !tune_db_load(db, &again) ||
      again.wrong_count != entry.wrong_count || again.tuned_ns != entry.tuned_ns || again.own_ns != entry.own_ns ||
      again.variant.family != entry.variant.family)
    abort();
}

static void check_note(const struct tune_db *db, const uint8_t *data, size_t size) {
  struct variant_problem problem;
  struct variant variant;
  write_file(db, "trying-0", data, size);
  if (tune_db_died(db, &problem, &variant) && tune_db_died(db, &problem, &variant))
    abort(); /* the note is gone after it was read */
}

/* The folder goes with each input: libFuzzer ends without calling who has asked to be called at the end. */
static void remove_all(const struct tune_db *db, const char *folder) {
  char path[640];
  struct variant_problem problem;
  struct error error;
  if (variant_problem_parse(shape, &problem, &error) == STATUS_OK)
    tune_db_remove(db, &problem);
  snprintf(path, sizeof path, "%s/tune", folder);
  if (rmdir(db->folder) != 0 || rmdir(path) != 0 || rmdir(folder) != 0)
    abort(); /* something else was left in there */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char folder[] = "/dev/shm/gemmd-fuzz-XXXXXX"; /* where syncing costs nothing */
  struct tune_db db;
  struct error error;
  char text[512];
  if (mkdtemp(folder) == NULL || tune_db_open(&db, folder, "x", 0, families, &error) != STATUS_OK)
    abort();
  if (size < sizeof text) {
    memcpy(text, data, size);
    text[size] = '\0';
    check_texts(text);
  }
  check_entry(&db, data, size);
  check_note(&db, data, size);
  remove_all(&db, folder);
  return 0;
}
