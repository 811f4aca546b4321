/* Writes what a backend chooses and computes into files of text, which compare.py compares with those of another build.
 *
 *   snapshot [--backend cuda|cpu] [--device N] [--state DIR] [--terms MOST] FOLDER
 *
 * --state: where kernels that are made at run time are kept; without it none is asked for. --terms: products of more
 * multiply-adds are left out; by default on a GPU none, on the machine's own cores what they compute in a moment.
 * FOLDER, which is made, gets choices.txt, products.txt and paths.txt. Two runs compare only on the same device with
 * the same driver and libraries. */
#include "snapshot.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define ARENA_BYTES ((uint64_t)256 << 20)
#define SLAB_BYTES ((uint64_t)320 << 20)
#define TERMS_ON_CORES ((uint64_t)1 << 27)
#define LIBRARY_BYTES ((uint64_t)64 << 20)

enum { IN_FLIGHT = 4 };

static int fail(const char *what, const char *why) {
  fprintf(stderr, "snapshot: %s: %s\n", what, why);
  return EXIT_FAILURE;
}

static enum status open_device(struct snapshot *snapshot, const struct backend_config *config, struct error *error) {
  struct backend_info info;
  enum status status = snapshot->ops->open(config, &snapshot->backend, error);
  if (status != STATUS_OK)
    return status;
  snapshot->ops->describe(snapshot->backend, &info);
  printf("%s: %s, %s\n", info.name, info.device_name, info.identity);
  uint64_t whole = ARENA_BYTES + SNAPSHOT_KEPT_BYTES;
  snapshot->base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (snapshot->base == MAP_FAILED)
    return error_set(error, STATUS_NOMEM, "no memory for an arena");
  snapshot->arena_bytes = ARENA_BYTES;
  snapshot->kept = snapshot->base + ARENA_BYTES;
  status = snapshot->ops->arena_register(snapshot->backend, snapshot->base, whole, &snapshot->arena, error);
  if (status != STATUS_OK)
    return status;
  snapshot->slab_bytes = gemm_ceil_div(SLAB_BYTES, info.slab_granularity) * info.slab_granularity;
  return snapshot->ops->slab_create(snapshot->backend, snapshot->slab_bytes, &snapshot->slab_fd, &snapshot->slab,
                                    error);
}

/* Writes a part into its file. False with a sentence on standard error where it cannot be written. */
static bool write_part(struct snapshot *snapshot, const char *folder, const char *name,
                       void (*part)(struct snapshot *snapshot)) {
  char path[4096];
  struct timespec begin, end;
  if (snprintf(path, sizeof path, "%s/%s.txt", folder, name) >= (int)sizeof path ||
      (snapshot->out = fopen(path, "w")) == NULL)
    return fail(path, strerror(errno)) == EXIT_SUCCESS;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  part(snapshot);
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (ferror(snapshot->out) | fclose(snapshot->out))
    return fail(path, strerror(errno)) == EXIT_SUCCESS;
  printf("%s: %.1f s\n", path, (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
  return true;
}

static void warn(const char *text) {
  fprintf(stderr, "snapshot: %s\n", text);
}

static int run(const char *name, const struct backend_config *config, uint64_t terms_most, const char *folder) {
  struct snapshot snapshot = {.builds = config->state_dir != NULL, .slab_fd = -1};
  struct error error = {.text = "no such backend in this build"};
  for (int i = 0; backend_table[i] != NULL; i++)
    if (strcmp(backend_table[i]->name, name) == 0)
      snapshot.ops = backend_table[i];
  if (snapshot.ops == NULL || open_device(&snapshot, config, &error) != STATUS_OK)
    return fail(name, error.text);
  snapshot.terms_most = terms_most != 0 ? terms_most : snapshot.ops->on_cores ? TERMS_ON_CORES : 0;
  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    return fail(folder, strerror(errno));
  bool written = write_part(&snapshot, folder, "choices", snapshot_choices) &&
                 write_part(&snapshot, folder, "products", snapshot_products) &&
                 write_part(&snapshot, folder, "paths", snapshot_paths);
  snapshot.ops->slab_close(snapshot.backend, snapshot.slab);
  snapshot.ops->arena_unregister(snapshot.backend, snapshot.arena);
  snapshot.ops->close(snapshot.backend);
  return written ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int count, char **arguments) {
  static const struct option options[] = {{"backend", required_argument, NULL, 'b'},
                                          {"device", required_argument, NULL, 'd'},
                                          {"state", required_argument, NULL, 's'},
                                          {"terms", required_argument, NULL, 't'},
                                          {NULL, 0, NULL, 0}};
  struct backend_config config = {.library_bytes = LIBRARY_BYTES, .in_flight = IN_FLIGHT, .warn = warn};
  const char *name = "cpu";
  uint64_t terms_most = 0;
  for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;)
    switch (option) {
    case 'b':
      name = optarg;
      break;
    case 'd':
      config.device = atoi(optarg);
      break;
    case 's':
      config.state_dir = optarg;
      break;
    case 't':
      terms_most = strtoull(optarg, NULL, 10);
      break;
    default:
      optind = count;
    }
  if (optind != count - 1) {
    fprintf(stderr, "snapshot [--backend cuda|cpu] [--device N] [--state DIR] [--terms MOST] FOLDER\n");
    return 2;
  }
  return run(name, &config, terms_most, arguments[optind]);
}
