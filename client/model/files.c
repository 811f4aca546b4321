#include "files.h"
#include "../session/argument.h"
#include "../session/session.h"
#include "index.h"

#include "../../proto/weights/header.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES_MOST = 64 << 20, CONFIG_BYTES_MOST = 1 << 20, SHARDS_MOST = 4096 };

/* ---- one file */

static enum status file_open(struct gemmd_session *session, int folder, const char *path, struct model_file *out) {
  *out = (struct model_file){.path = strdup(path), .fd = -1};
  if (out->path == NULL)
    return error_set(&session->error, STATUS_NOMEM, "no memory for a path");
  enum status status = path_open(session, folder, path, &out->fd);
  if (status != STATUS_OK)
    return status;
  if (fstat(out->fd, &out->then) != 0 || !S_ISREG(out->then.st_mode))
    return error_set(&session->error, STATUS_BAD_DESCRIPTOR, "%.160s is no regular file", path);
  return STATUS_OK;
}

static void file_close(struct model_file *file) {
  if (file->fd >= 0)
    close(file->fd);
  free(file->path);
  *file = (struct model_file){.fd = -1};
}

static enum status read_at(void *context, uint64_t offset, void *out, size_t bytes, struct error *error) {
  const struct model_file *file = context;
  char *to = out;
  while (bytes > 0) {
    ssize_t got = pread(file->fd, to, bytes, (off_t)offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return error_set(error, got < 0 ? STATUS_SYSTEM : STATUS_BAD_FILE, "%.120s cannot be read at byte %llu: %s",
                       file->path, (unsigned long long)offset, got < 0 ? strerror(errno) : "it ends there");
    to += got;
    offset += (uint64_t)got;
    bytes -= (size_t)got;
  }
  return STATUS_OK;
}

/* All of a file of text, terminated; the caller's to free. */
static char *read_text(struct model_file *file, size_t most, size_t *bytes, struct error *error) {
  *bytes = (size_t)file->then.st_size;
  if ((uint64_t)file->then.st_size > most) {
    (void)error_set(error, STATUS_BAD_FILE, "%.120s has %lld bytes; the most is %zu", file->path,
                    (long long)file->then.st_size, most);
    return NULL;
  }
  char *text = malloc(*bytes + 1);
  if (text == NULL) {
    (void)error_set(error, STATUS_NOMEM, "no memory for %.120s", file->path);
    return NULL;
  }
  text[*bytes] = '\0';
  if (read_at(file, 0, text, *bytes, error) == STATUS_OK)
    return text;
  free(text);
  return NULL;
}

/* ---- a folder */

struct names {
  char *names[SHARDS_MOST]; /* owned */
  size_t count;
};

static int compare_texts(const void *left, const void *right) {
  return strcmp(*(char *const *)left, *(char *const *)right);
}

static void names_free(struct names *names) {
  while (names->count > 0)
    free(names->names[--names->count]);
}

/* Names in the folder that end so, in order. False: too many, or no memory. */
static bool names_find(DIR *folder, const char *suffix, struct names *out) {
  const struct dirent *entry;
  out->count = 0;
  rewinddir(folder);
  while ((entry = readdir(folder)) != NULL) {
    if (entry->d_name[0] == '.' || !import_ends(entry->d_name, suffix))
      continue;
    if (out->count == SHARDS_MOST || (out->names[out->count] = strdup(entry->d_name)) == NULL)
      return false;
    out->count++;
  }
  qsort(out->names, out->count, sizeof *out->names, compare_texts);
  return true;
}

static enum status add_file(struct gemmd_session *session, int folder, const char *path, struct model_files *out) {
  struct model_file *grown = realloc(out->files, (out->count + 1) * sizeof *grown);
  if (grown == NULL)
    return error_set(&session->error, STATUS_NOMEM, "no memory for the model's files");
  out->files = grown;
  return file_open(session, folder, path, &out->files[out->count++]);
}

static enum status add_indexed(struct gemmd_session *session, int folder, const char *name, struct model_files *out,
                               struct model_index *index) {
  struct model_file file;
  size_t bytes;
  enum status status = file_open(session, folder, name, &file);
  char *text = status == STATUS_OK ? read_text(&file, TEXT_BYTES_MOST, &bytes, &session->error) : NULL;
  if (status == STATUS_OK)
    status = text != NULL ? model_index_parse(text, bytes, index, &session->error) : session->error.status;
  free(text);
  file_close(&file);
  for (size_t i = 0; status == STATUS_OK && i < index->file_count; i++)
    status = add_file(session, folder, index->files[i], out);
  return status;
}

/* Without an index one file is the model. */
static enum status add_single(struct gemmd_session *session, DIR *folder, const char *path, struct model_files *out) {
  static const char *const kinds[] = {".safetensors", ".gguf"};
  struct names *names = calloc(1, sizeof *names);
  enum status status = names != NULL ? STATUS_NOT_FOUND : STATUS_NOMEM;
  (void)error_set(&session->error, status, "%.160s has no file of weights (.safetensors, .gguf)", path);
  for (size_t i = 0; names != NULL && i < sizeof kinds / sizeof *kinds && status == STATUS_NOT_FOUND; i++) {
    if (!names_find(folder, kinds[i], names) || names->count > 1)
      status = error_set(&session->error, STATUS_BAD_FILE,
                         "%.120s has %zu %s files and no index: name the files that are the model", path, names->count,
                         kinds[i]);
    else if (names->count == 1)
      status = add_file(session, dirfd(folder), names->names[0], out);
    names_free(names);
  }
  free(names);
  return status;
}

static enum status add_folder(struct gemmd_session *session, DIR *folder, const char *path, struct model_files *out,
                              struct model_index *index) {
  struct names *names = calloc(1, sizeof *names);
  if (names == NULL)
    return error_set(&session->error, STATUS_NOMEM, "no memory for the model's files");
  enum status status = STATUS_OK;
  if (!names_find(folder, ".safetensors.index.json", names) || names->count > 1)
    status = error_set(&session->error, STATUS_BAD_FILE, "%.160s has several indices: name the files", path);
  else if (names->count == 1)
    status = add_indexed(session, dirfd(folder), names->names[0], out, index);
  else
    status = add_single(session, folder, path, out);
  names_free(names);
  free(names);
  return status;
}

/* ---- the configuration: the first of these that says something about quantization, else none */

static enum status find_config(struct gemmd_session *session, int folder, struct model_files *out) {
  static const char *const names[] = {"config.json", "quantize_config.json", "hf_quant_config.json"};
  enum status status = STATUS_OK;
  for (size_t i = 0; status == STATUS_OK && out->config.fd < 0 && i < sizeof names / sizeof *names; i++) {
    struct import_model looked;
    size_t bytes;
    if (faccessat(folder, names[i], F_OK, 0) != 0)
      continue;
    status = file_open(session, folder, names[i], &out->config);
    char *text = status == STATUS_OK ? read_text(&out->config, CONFIG_BYTES_MOST, &bytes, &session->error) : NULL;
    if (status == STATUS_OK)
      status = text != NULL ? import_open(&looked, NULL, 0, text, bytes, &session->error) : session->error.status;
    bool says = status == STATUS_OK && looked.config != NULL;
    if (status == STATUS_OK)
      import_close(&looked);
    if (!says)
      file_close(&out->config);
    free(text);
  }
  return status;
}

static enum status find_config_beside(struct gemmd_session *session, const char *path, struct model_files *out) {
  const char *slash = strrchr(path, '/');
  char *folder = slash != NULL ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  int fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  enum status status = fd >= 0 ? find_config(session, fd, out) : STATUS_OK;
  if (fd >= 0)
    close(fd);
  free(folder);
  return status;
}

/* ---- the model */

static enum status read_headers(struct gemmd_session *session, struct model_files *out) {
  out->headers = calloc(out->count + 1, sizeof *out->headers);
  if (out->headers == NULL)
    return error_set(&session->error, STATUS_NOMEM, "no memory for the model's files");
  for (size_t i = 0; i < out->count; i++) {
    struct error cause;
    const struct header_source source = {
        .file = &out->files[i], .bytes = (uint64_t)out->files[i].then.st_size, .read = read_at};
    if (header_read(&source, &out->headers[i], &cause) != STATUS_OK)
      return error_set(&session->error, cause.status, "%.100s: %.140s", out->files[i].path, cause.text);
  }
  return STATUS_OK;
}

static enum status open_model(struct gemmd_session *session, struct model_files *out) {
  size_t bytes = 0;
  char *text = out->config.fd >= 0 ? read_text(&out->config, CONFIG_BYTES_MOST, &bytes, &session->error) : NULL;
  if (out->config.fd >= 0 && text == NULL)
    return session->error.status;
  enum status status = import_open(&out->model, out->headers, out->count, text, bytes, &session->error);
  free(text);
  return status;
}

/* What the index promises must be where it says. */
static enum status check_index(struct gemmd_session *session, const struct model_files *files,
                               const struct model_index *index) {
  for (size_t i = 0; i < index->count; i++) {
    const struct import_entry *entry = import_find(&files->model, index->entries[i].tensor);
    if (entry == NULL || entry->file != index->entries[i].file)
      return error_set(&session->error, STATUS_BAD_FILE, "the index says that '%s' is in %.80s, which does not have it",
                       IMPORT_SHOW(index->entries[i].tensor), index->files[index->entries[i].file]);
  }
  return STATUS_OK;
}

static enum status open_paths(struct gemmd_session *session, const char *const *paths, unsigned count,
                              struct model_files *out, struct model_index *index) {
  DIR *folder = count == 1 ? opendir(paths[0]) : NULL;
  enum status status = STATUS_OK;
  if (folder != NULL) {
    status = add_folder(session, folder, paths[0], out, index);
    if (status == STATUS_OK)
      status = find_config(session, dirfd(folder), out);
    closedir(folder);
    return status;
  }
  for (unsigned i = 0; status == STATUS_OK && i < count; i++)
    status = add_file(session, AT_FDCWD, paths[i], out);
  return status == STATUS_OK ? find_config_beside(session, paths[0], out) : status;
}

enum status model_files_open(struct gemmd_session *session, const char *const *paths, unsigned count,
                             struct model_files *out) {
  struct model_index index = {.count = 0};
  *out = (struct model_files){.config = {.fd = -1}};
  if (count == 0)
    return error_set(&session->error, STATUS_INVALID, "a model takes a folder or files, got none");
  enum status status = open_paths(session, paths, count, out, &index);
  if (status == STATUS_OK)
    status = read_headers(session, out);
  if (status == STATUS_OK)
    status = open_model(session, out);
  if (status == STATUS_OK)
    status = check_index(session, out, &index);
  model_index_free(&index);
  return status;
}

void model_files_close(struct model_files *files) {
  import_close(&files->model);
  for (size_t i = 0; i < files->count; i++) {
    if (files->headers != NULL)
      safetensors_free(&files->headers[i]);
    file_close(&files->files[i]);
  }
  file_close(&files->config);
  free(files->headers);
  free(files->files);
  *files = (struct model_files){.config = {.fd = -1}};
}

enum status model_files_unchanged(const struct model_files *files, struct error *error) {
  for (size_t i = 0; i < files->count; i++) {
    const struct model_file *file = &files->files[i];
    struct stat now;
    if (fstat(file->fd, &now) != 0 || now.st_size != file->then.st_size ||
        now.st_mtim.tv_sec != file->then.st_mtim.tv_sec || now.st_mtim.tv_nsec != file->then.st_mtim.tv_nsec)
      return error_set(error, STATUS_BAD_FILE, "%.160s has changed while it was loaded", file->path);
  }
  return STATUS_OK;
}
