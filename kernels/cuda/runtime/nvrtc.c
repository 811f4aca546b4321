#include "nvrtc.h"

#include "toolkit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Once loaded it stays: what it keeps in memory between compilations would be lost. */
static const struct toolkit_library library = {.name = "libnvrtc",
                                               .option = "nvrtc",
                                               .without = "kernels that are not built in cannot be compiled",
                                               .flags = RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE};

enum status nvrtc_open(const char *path, struct nvrtc *out, struct error *error) {
  memset(out, 0, sizeof *out);
#define ROW(name) {#name, (void **)&out->name},
  const struct toolkit_function functions[] = {NVRTC_FUNCTIONS(ROW)};
#undef ROW
  return toolkit_open(&library, path, functions, sizeof functions / sizeof functions[0], &out->library, error);
}

void nvrtc_close(struct nvrtc *nvrtc) {
  if (nvrtc->library)
    dlclose(nvrtc->library);
  nvrtc->library = NULL;
}

/* The first line of the log that names an error. */
static enum status complain(const struct nvrtc *nvrtc, nvrtcProgram program, nvrtcResult result, struct error *error) {
  size_t bytes = 0;
  char *log = NULL, *line = NULL;
  if (nvrtc->nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS && bytes > 1)
    log = calloc(1, bytes + 1);
  if (log && nvrtc->nvrtcGetProgramLog(program, log) == NVRTC_SUCCESS)
    line = strstr(log, "error");
  if (line)
    line[strcspn(line, "\n")] = '\0';
  enum status status = error_set(error, STATUS_INTERNAL, "compiling a kernel: %s%s%.120s",
                                 nvrtc->nvrtcGetErrorString(result), line ? ": " : "", line ? line : "");
  free(log);
  return status;
}

static enum status take_code(const struct nvrtc *nvrtc, nvrtcProgram program, void **code, size_t *bytes,
                             struct error *error) {
  nvrtcResult result = nvrtc->nvrtcGetCUBINSize(program, bytes);
  *code = result == NVRTC_SUCCESS && *bytes > 0 ? malloc(*bytes) : NULL;
  if (result == NVRTC_SUCCESS && !*code)
    return error_set(error, STATUS_NOMEM, "no memory for a kernel of %zu bytes", *bytes);
  if (result == NVRTC_SUCCESS)
    result = nvrtc->nvrtcGetCUBIN(program, *code);
  if (result == NVRTC_SUCCESS)
    return STATUS_OK;
  free(*code);
  return complain(nvrtc, program, result, error);
}

enum status nvrtc_compile(const struct nvrtc *nvrtc, const struct nvrtc_program *program, void **code, size_t *bytes,
                          struct error *error) {
  nvrtcProgram made = NULL;
  nvrtcResult result = nvrtc->nvrtcCreateProgram(&made, program->source, "kernel.cu", program->header_count,
                                                 program->headers, program->header_names);
  if (result != NVRTC_SUCCESS)
    return error_set(error, STATUS_INTERNAL, "compiling a kernel: %s", nvrtc->nvrtcGetErrorString(result));
  result = nvrtc->nvrtcCompileProgram(made, program->option_count, program->options);
  enum status status =
      result == NVRTC_SUCCESS ? take_code(nvrtc, made, code, bytes, error) : complain(nvrtc, made, result, error);
  (void)nvrtc->nvrtcDestroyProgram(&made);
  return status;
}
