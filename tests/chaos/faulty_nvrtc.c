/* libnvrtc that compiles a kernel that fails: the library that a test's gemmd is told to open. All of it is the real
 * one (it is linked with it, and dlsym finds the rest there), but where the file of faulty.h says "compile", the next
 * program writes to an address that nothing is mapped at. */
#include "faulty.h"

#include <dlfcn.h>
#include <nvrtc.h>

static const char begin[] = "tile_product(const tile_params p) {";
static const char fault[] = " *reinterpret_cast<volatile int *>(0x7000) = 1;";

/* The caller frees. NULL: it is no source that begins as expected. */
static char *spoil(const char *source) {
  const char *at = strstr(source, begin);
  size_t bytes = strlen(source) + sizeof fault;
  char *spoiled = at != NULL ? malloc(bytes) : NULL;
  if (spoiled != NULL)
    snprintf(spoiled, bytes, "%.*s%s%s", (int)(at + strlen(begin) - source), source, fault, at + strlen(begin));
  return spoiled;
}

__attribute__((visibility("default"))) nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source,
                                                                      const char *name, int count,
                                                                      const char *const *headers,
                                                                      const char *const *names) {
  nvrtcResult (*real)(nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *);
  char word[FAULTY_WORD];
  *(void **)&real = dlsym(RTLD_NEXT, "nvrtcCreateProgram");
  char *spoiled = faulty_take("compile", word) ? spoil(source) : NULL;
  fprintf(stderr, "faulty nvrtc: a kernel is compiled %s\n", spoiled != NULL ? "that fails" : "as it is");
  nvrtcResult result = real(program, spoiled != NULL ? spoiled : source, name, count, headers, names);
  free(spoiled);
  return result;
}
