/* libnvrtc, opened at run time: compiles CUDA C++ for a device. Needs no device itself. */
#pragma once

#include "../../../proto/status.h"

#include <nvrtc.h>
#include <stddef.h>

#define NVRTC_FUNCTIONS(ROW)                                                                                           \
  ROW(nvrtcVersion)                                                                                                    \
  ROW(nvrtcGetErrorString)                                                                                             \
  ROW(nvrtcCreateProgram)                                                                                              \
  ROW(nvrtcCompileProgram)                                                                                             \
  ROW(nvrtcGetProgramLogSize)                                                                                          \
  ROW(nvrtcGetProgramLog)                                                                                              \
  ROW(nvrtcGetCUBINSize)                                                                                               \
  ROW(nvrtcGetCUBIN)                                                                                                   \
  ROW(nvrtcDestroyProgram)

struct nvrtc {
  void *library;
#define ROW(name) __typeof__(&name) name;
  NVRTC_FUNCTIONS(ROW)
#undef ROW
};

/* Opens `path`, or where it is NULL or empty the usual names and then the toolkit's usual folders. UNSUPPORTED with the
 * reason otherwise. */
MUST_CHECK enum status nvrtc_open(const char *path, struct nvrtc *out, struct error *error);
void nvrtc_close(struct nvrtc *nvrtc);

struct nvrtc_program {
  const char *source;
  const char *const *header_names, *const *headers; /* that it may include */
  int header_count;
  const char *const *options;
  int option_count;
};

/* The device's code, for cuModuleLoadData; the caller frees. INTERNAL with the compiler's first complaint. */
MUST_CHECK enum status nvrtc_compile(const struct nvrtc *nvrtc, const struct nvrtc_program *program, void **code,
                                     size_t *bytes, struct error *error);
