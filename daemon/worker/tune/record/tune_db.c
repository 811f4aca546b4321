#include "tune_db.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 16384, PATH_BYTES = 1024 };
static const char suffix[] = ".json";

static enum status make_folder(const char *path, struct error *error) {
  if (mkdir(path, 0750) != 0 && errno != EEXIST)
    return error_set(error, STATUS_SYSTEM, "tunings are not kept: making %.150s: %s", path, strerror(errno));
  return STATUS_OK;
}

enum status tune_db_open(struct tune_db *db, const char *state_dir, const char *identity, int device,
                         const struct variant_family *const *families, struct error *error) {
  db->families = families;
  db->device = device;
  db->folder[0] = '\0';
  char parent[PATH_BYTES], folder[PATH_BYTES];
  int length = snprintf(parent, sizeof parent, "%s/tune", state_dir);
  length += snprintf(folder, sizeof folder, "%.600s/%s", parent, identity);
  if (length >= PATH_BYTES || strlen(folder) >= sizeof db->folder)
    return error_set(error, STATUS_INVALID, "tunings are not kept: the state folder's path is too long");
  enum status status = make_folder(state_dir, error);
  if (status == STATUS_OK)
    status = make_folder(parent, error);
  if (status == STATUS_OK)
    status = make_folder(folder, error);
  if (status == STATUS_OK)
    snprintf(db->folder, sizeof db->folder, "%s", folder);
  return status;
}

static void path_of(const struct tune_db *db, const struct variant_problem *problem, char out[PATH_BYTES]) {
  char name[VARIANT_TEXT_BYTES];
  snprintf(out, PATH_BYTES, "%s/%s%s", db->folder, variant_problem_text(problem, name), suffix);
}

/* ---- reading */

/* The text of a regular file of reasonable size; NULL otherwise. The caller frees. */
static char *read_file(const char *path, size_t *length) {
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  struct stat stat;
  char *text = NULL;
  ssize_t got = -1;
  if (fd >= 0 && fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size <= FILE_BYTES)
    text = malloc(FILE_BYTES);
  if (text != NULL)
    got = read(fd, text, FILE_BYTES);
  if (fd >= 0)
    close(fd);
  if (got < 0) {
    free(text);
    return NULL;
  }
  *length = (size_t)got;
  return text;
}

static bool read_variant(const struct tune_db *db, const json_t *text, struct variant *out) {
  struct error ignored;
  return json_is_string(text) && variant_parse(db->families, json_string_value(text), out, &ignored) == STATUS_OK;
}

static bool fill(const struct tune_db *db, const json_t *root, struct book_entry *entry) {
  char name[VARIANT_TEXT_BYTES];
  const char *shape;
  json_t *variant, *wrong;
  json_int_t version, own, tuned, library;
  int confirmed, waits = 0, compiled = 0;
  struct book_entry made = *entry;
  if (json_unpack((json_t *)root, "{s:I, s:s, s:o, s:I, s:I, s:I, s:b, s?b, s?b, s:o}", "version", &version, "shape",
                  &shape, "kernel", &variant, "own_ns", &own, "tuned_ns", &tuned, "library_ns", &library, "confirmed",
                  &confirmed, "library_waits", &waits, "compiled_wait", &compiled, "wrong", &wrong) != 0 ||
      version != 1 || own < 0 || tuned < 0 || library < 0 || !json_is_array(wrong) ||
      strcmp(shape, variant_problem_text(&entry->problem, name)) != 0)
    return false;
  made.variant = (struct variant){.family = NULL};
  if (!json_is_null(variant) && !read_variant(db, variant, &made.variant))
    return false;
  made.wrong_count = 0;
  for (size_t i = 0; i < json_array_size(wrong) && i < BOOK_WRONG; i++)
    if (read_variant(db, json_array_get(wrong, i), &made.wrong[made.wrong_count]))
      made.wrong_count++;
  made.own_ns = (uint64_t)own;
  made.tuned_ns = (uint64_t)tuned;
  made.library_ns = (uint64_t)library;
  made.confirmed = confirmed;
  made.library_waits = waits;
  made.compiled_wait = compiled;
  made.state = BOOK_KEPT;
  *entry = made;
  return true;
}

bool tune_db_load(const struct tune_db *db, struct book_entry *entry) {
  char path[PATH_BYTES];
  size_t length;
  if (db->folder[0] == '\0')
    return false;
  path_of(db, &entry->problem, path);
  char *text = read_file(path, &length);
  if (text == NULL)
    return false;
  json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
  bool read = root != NULL && fill(db, root, entry);
  json_decref(root);
  free(text);
  return read;
}

/* Whether a file has the name of an entry, and whose. */
static bool read_name(const char *name, struct variant_problem *out) {
  char shape[VARIANT_TEXT_BYTES];
  struct error ignored;
  size_t length = strlen(name), end = strlen(suffix);
  if (length <= end || length - end >= sizeof shape || strcmp(name + length - end, suffix) != 0)
    return false;
  snprintf(shape, sizeof shape, "%.*s", (int)(length - end), name);
  return variant_problem_parse(shape, out, &ignored) == STATUS_OK;
}

uint32_t tune_db_list(const struct tune_db *db, struct variant_problem *out, uint32_t most) {
  uint32_t count = 0;
  DIR *folder = db->folder[0] != '\0' ? opendir(db->folder) : NULL;
  if (folder == NULL)
    return 0;
  for (struct dirent *file; (file = readdir(folder)) != NULL;) {
    struct variant_problem problem;
    if (!read_name(file->d_name, &problem))
      continue;
    if (count < most)
      out[count] = problem;
    count++;
  }
  closedir(folder);
  return count;
}

/* ---- writing */

static json_t *variant_json(const struct variant *variant) {
  char text[VARIANT_TEXT_BYTES];
  return variant->family == NULL ? json_null() : json_string(variant_text(variant, text));
}

static char *entry_text(const struct book_entry *entry) {
  char name[VARIANT_TEXT_BYTES];
  json_t *wrong = json_array();
  bool nothing_faster = entry->state == BOOK_TUNED && !entry->serves;
  for (uint32_t i = 0; i < entry->wrong_count; i++)
    json_array_append_new(wrong, variant_json(&entry->wrong[i]));
  json_t *root = json_pack("{s:i, s:s, s:o, s:I, s:I, s:I, s:b, s:b, s:b, s:o}", "version", 1, "shape",
                           variant_problem_text(&entry->problem, name), "kernel",
                           nothing_faster ? json_null() : variant_json(&entry->variant), "own_ns",
                           (json_int_t)entry->own_ns, "tuned_ns", (json_int_t)entry->tuned_ns, "library_ns",
                           (json_int_t)entry->library_ns, "confirmed", entry->confirmed, "library_waits",
                           entry->library_waits, "compiled_wait", entry->compiled_wait, "wrong", wrong);
  char *text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
  json_decref(root);
  return text;
}

static bool write_synced(int fd, const char *text) {
  size_t length = strlen(text);
  return write(fd, text, length) == (ssize_t)length && fsync(fd) == 0;
}

/* A name is not on the disk before its folder is. */
static bool sync_folder(const char *folder) {
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool synced = fd >= 0 && fsync(fd) == 0;
  int failure = errno;
  if (fd >= 0)
    close(fd);
  errno = failure;
  return synced;
}

static bool written_before(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* Removes the entry that was written longest ago. */
static void make_room(const struct tune_db *db) {
  char oldest[VARIANT_TEXT_BYTES + sizeof suffix] = "";
  struct timespec when = {.tv_sec = 0};
  DIR *folder = opendir(db->folder);
  if (folder == NULL)
    return;
  for (struct dirent *file; (file = readdir(folder)) != NULL;) {
    struct variant_problem problem;
    struct stat stat;
    if (!read_name(file->d_name, &problem) || fstatat(dirfd(folder), file->d_name, &stat, AT_SYMLINK_NOFOLLOW) != 0 ||
        (oldest[0] != '\0' && !written_before(&stat.st_mtim, &when)))
      continue;
    snprintf(oldest, sizeof oldest, "%s", file->d_name);
    when = stat.st_mtim;
  }
  if (oldest[0] != '\0')
    (void)unlinkat(dirfd(folder), oldest, 0);
  closedir(folder);
}

enum status tune_db_save(const struct tune_db *db, const struct book_entry *entry, struct error *error) {
  char path[PATH_BYTES], temporary[PATH_BYTES];
  if (db->folder[0] == '\0')
    return STATUS_OK;
  path_of(db, &entry->problem, path);
  snprintf(temporary, sizeof temporary, "%s/.XXXXXX", db->folder);
  char *text = entry_text(entry);
  if (text == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for a tuning");
  if (access(path, F_OK) != 0 && tune_db_list(db, NULL, 0) >= TUNE_DB_FILES)
    make_room(db);
  int fd = mkostemp(temporary, O_CLOEXEC);
  bool written = fd >= 0 && write_synced(fd, text) && rename(temporary, path) == 0;
  bool kept = written && sync_folder(db->folder);
  int failure = errno;
  if (fd >= 0)
    close(fd);
  if (fd >= 0 && !written)
    unlink(temporary);
  free(text);
  return kept ? STATUS_OK : error_set(error, STATUS_SYSTEM, "keeping a tuning: %s", strerror(failure));
}

/* ---- the note. Not synced: it is for the death of a process, not of the machine */

static void note_path(const struct tune_db *db, char out[PATH_BYTES]) {
  snprintf(out, PATH_BYTES, "%s/trying-%d", db->folder, db->device);
}

void tune_db_trying(const struct tune_db *db, const struct variant_problem *problem, const struct variant *variant) {
  char path[PATH_BYTES], shape[VARIANT_TEXT_BYTES], kernel[VARIANT_TEXT_BYTES];
  if (db->folder[0] == '\0')
    return;
  note_path(db, path);
  if (variant == NULL) {
    unlink(path);
    return;
  }
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
  if (fd >= 0) {
    dprintf(fd, "%s\n%s\n", variant_problem_text(problem, shape), variant_text(variant, kernel));
    close(fd);
  }
}

bool tune_db_died(const struct tune_db *db, struct variant_problem *problem, struct variant *variant) {
  char path[PATH_BYTES], *place = NULL;
  size_t length;
  struct error ignored;
  if (db->folder[0] == '\0')
    return false;
  note_path(db, path);
  char *text = read_file(path, &length);
  if (text == NULL)
    return false;
  unlink(path);
  text[length < FILE_BYTES ? length : FILE_BYTES - 1] = '\0';
  const char *shape = strtok_r(text, "\n", &place), *kernel = strtok_r(NULL, "\n", &place);
  bool read = shape != NULL && kernel != NULL && variant_problem_parse(shape, problem, &ignored) == STATUS_OK &&
              variant_parse(db->families, kernel, variant, &ignored) == STATUS_OK;
  free(text);
  return read;
}

void tune_db_remove(const struct tune_db *db, const struct variant_problem *problem) {
  char path[PATH_BYTES];
  if (db->folder[0] == '\0')
    return;
  path_of(db, problem, path);
  unlink(path);
}
