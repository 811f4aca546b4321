#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A new file, with the rights that new files get. NULL with errno. */
static FILE *make_part(char *path) {
  mode_t mask = umask(0);
  (void)umask(mask);
  int fd = mkostemp(path, O_CLOEXEC);
  FILE *file = fd >= 0 && fchmod(fd, 0666 & ~mask) == 0 ? fdopen(fd, "wb") : NULL;
  if (file == NULL && fd >= 0) {
    int failure = errno;
    close(fd);
    unlink(path);
    errno = failure;
  }
  return file;
}

/* What lies beside the output goes with who is interrupted. */
static const int endings[OUTPUT_ENDINGS] = {SIGINT, SIGTERM, SIGHUP};
static const char *part_path;

static void remove_part(int number) {
  unlink(part_path);
  raise(number); /* by SA_RESETHAND the handler is gone */
}

static void watch_endings(struct output *output) {
  struct sigaction remove = {.sa_handler = remove_part, .sa_flags = (int)SA_RESETHAND};
  part_path = output->part;
  for (int i = 0; i < OUTPUT_ENDINGS; i++)
    if (sigaction(endings[i], NULL, &output->before[i]) == 0 &&
        output->before[i].sa_handler != SIG_IGN) /* as nohup has it */
      sigaction(endings[i], &remove, NULL);
}

static void leave_endings(const struct output *output) {
  for (int i = 0; i < OUTPUT_ENDINGS; i++)
    sigaction(endings[i], &output->before[i], NULL);
}

static void release(struct output *output) {
  int failure = errno;
  if (output->part != NULL)
    leave_endings(output);
  free(output->path);
  free(output->part);
  *output = (struct output){.file = NULL};
  errno = failure;
}

bool output_open(struct output *output, const char *path) {
  struct stat about;
  bool there = stat(path, &about) == 0;
  *output = (struct output){.file = NULL};
  if (there && !S_ISREG(about.st_mode)) {
    output->file = fopen(path, "wbe");
  } else {
    output->path = there ? realpath(path, NULL) : strdup(path); /* of a link, what it leads to is replaced */
    if (output->path == NULL)
      return false;
    if (asprintf(&output->part, "%s.part.XXXXXX", output->path) < 0)
      output->part = NULL;
    if (output->part != NULL) {
      watch_endings(output);
      output->file = make_part(output->part);
    }
  }
  if (output->file != NULL)
    return true;
  release(output);
  return false;
}

bool output_close(struct output *output, bool whole) {
  bool lost = ferror(output->file) != 0;
  bool closed = fclose(output->file) == 0;
  if (lost && closed)
    errno = EIO; /* nobody knows any more what it was */
  whole = whole && !lost;
  bool good = closed && !lost && (!whole || output->part == NULL || rename(output->part, output->path) == 0);
  int failure = errno;
  if (output->part != NULL && (!whole || !good))
    unlink(output->part);
  errno = failure;
  release(output);
  return good;
}
