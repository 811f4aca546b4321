#include "code_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, HEAD_BYTES = CODE_KEY_BYTES + 128 };

uint64_t code_hash(const void *data, size_t bytes, uint64_t seed) {
  const uint8_t *at = data;
  uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ seed;
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
  return hash;
}

static bool path_of(const char *folder, const char *key, const char *suffix, char out[PATH_BYTES]) {
  int length = snprintf(out, PATH_BYTES, "%s/%016" PRIx64 "%s", folder, code_hash(key, strlen(key), 0), suffix);
  return length > 0 && length < PATH_BYTES;
}

/* The file's first lines, which the code must agree with. */
static int head_of(const char *key, const void *code, size_t bytes, char out[HEAD_BYTES]) {
  return snprintf(out, HEAD_BYTES, "gemmd kernel 1\n%s\n%zu %016" PRIx64 "\n", key, bytes, code_hash(code, bytes, 0));
}

/* ---- reading */

static uint8_t *read_whole(const char *path, size_t *bytes) {
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  struct stat stat;
  uint8_t *data = NULL;
  size_t got = 0;
  if (fd >= 0 && fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size > 0 &&
      stat.st_size <= CODE_BYTES_MOST + HEAD_BYTES)
    data = malloc((size_t)stat.st_size);
  for (ssize_t more = 1; data && more > 0 && got<(size_t)stat.st_size; got += more> 0 ? (size_t)more : 0)
    more = read(fd, data + got, (size_t)stat.st_size - got);
  if (fd >= 0)
    close(fd);
  *bytes = got;
  return data;
}

/* Where the code begins behind a head that says what is there; 0: it does not. */
static size_t check(const uint8_t *data, size_t bytes, const char *key) {
  char head[HEAD_BYTES];
  size_t lines = 0, at = 0;
  while (at < bytes && lines < 3)
    lines += data[at++] == '\n';
  if (lines < 3 || at >= bytes)
    return 0;
  int length = head_of(key, data + at, bytes - at, head);
  return length > 0 && (size_t)length == at && memcmp(head, data, at) == 0 ? at : 0;
}

bool code_cache_load(const char *folder, const char *key, void **code, size_t *bytes) {
  char path[PATH_BYTES];
  size_t whole;
  if (!path_of(folder, key, ".code", path))
    return false;
  uint8_t *data = read_whole(path, &whole);
  size_t begin = data ? check(data, whole, key) : 0;
  if (begin > 0) {
    memmove(data, data + begin, whole - begin);
    *code = data;
    *bytes = whole - begin;
    return true;
  }
  free(data);
  return false;
}

/* ---- writing */

static bool write_all(int fd, const void *data, size_t bytes) {
  for (const uint8_t *at = data; bytes > 0;) {
    ssize_t written = write(fd, at, bytes);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    at += written;
    bytes -= (size_t)written;
  }
  return true;
}

/* And the one that it is in. */
static bool make_folder(const char *folder) {
  char parent[PATH_BYTES];
  const char *name = strrchr(folder, '/');
  if (name && name > folder && snprintf(parent, sizeof parent, "%.*s", (int)(name - folder), folder) < PATH_BYTES)
    (void)mkdir(parent, 0750);
  return mkdir(folder, 0750) == 0 || errno == EEXIST;
}

enum status code_cache_save(const char *folder, const char *key, const void *code, size_t bytes, struct error *error) {
  char path[PATH_BYTES], temporary[PATH_BYTES], head[HEAD_BYTES], suffix[32];
  snprintf(suffix, sizeof suffix, ".%ld.new", (long)getpid());
  if (!make_folder(folder))
    return error_set(error, STATUS_SYSTEM, "a compiled kernel is not kept: making %.150s: %s", folder, strerror(errno));
  if (strlen(key) >= CODE_KEY_BYTES || strchr(key, '\n') || bytes > CODE_BYTES_MOST ||
      !path_of(folder, key, ".code", path) || !path_of(folder, key, suffix, temporary))
    return error_set(error, STATUS_INVALID, "a compiled kernel is not kept: its key or path is too long");
  int length = head_of(key, code, bytes, head);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
  bool written = fd >= 0 && write_all(fd, head, (size_t)length) && write_all(fd, code, bytes) && fsync(fd) == 0;
  if (fd >= 0 && close(fd) != 0)
    written = false;
  if (written && rename(temporary, path) == 0)
    return STATUS_OK;
  int failure = errno;
  (void)unlink(temporary);
  return error_set(error, STATUS_SYSTEM, "a compiled kernel is not kept: %.150s: %s", path, strerror(failure));
}
