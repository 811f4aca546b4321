/* tune export, tune import: what was found, as a readable file for other machines of the same kind. */
#include "files.h"
#include "shapes.h"

#include "../../tool/print.h"
#include "../output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- export */

static json_t *export_json(const struct tune_shapes *shapes, size_t *count) {
  json_t *list = json_array();
  *count = 0;
  for (size_t i = 0; i < shapes->count; i++) {
    const gemmd_tune_shape *shape = &shapes->list[i];
    if (strcmp(shape->state, "tuned") != 0 || strcmp(shape->kernel, "none") == 0)
      continue;
    json_array_append_new(list, json_pack("{s:o, s:o, s:I, s:I}", "shape", print_json_text(shape->shape), "kernel",
                                          print_json_text(shape->kernel), "own_ns", (json_int_t)shape->own_ns,
                                          "tuned_ns", (json_int_t)shape->tuned_ns));
    (*count)++;
  }
  return list;
}

/* False with errno where not all of it could be written; an older file is there then. */
static bool write_file(const json_t *root, const char *path) {
  struct output output;
  if (!output_open(&output, path))
    return false;
  bool good = json_dumpf(root, output.file, JSON_INDENT(2)) == 0 && fputc('\n', output.file) == '\n';
  int failure = errno;
  bool closed = output_close(&output, good);
  errno = good ? errno : failure;
  return good && closed;
}

enum tool_exit tune_export(struct tool_call *call, gemmd_session *session, uint32_t device, const char *path) {
  struct tune_shapes shapes;
  gemmd_daemon_info info;
  size_t count;
  enum tool_exit code = tune_shapes(call, session, device, &shapes);
  int status = code == TOOL_OK ? gemmd_daemon_status(session, &info) : GEMMD_OK;
  if (code == TOOL_OK && status != GEMMD_OK)
    code = tool_refused(call, session, status);
  if (code == TOOL_OK) {
    json_t *tunings = export_json(&shapes, &count);
    const char *name = device < info.devices ? info.device[device].name : "";
    json_t *root = json_pack("{s:i, s:o, s:o, s:o}", "version", 1, "backend", print_json_text(info.backend), "device",
                             print_json_text(name), "tunings", tunings);
    if (root == NULL || !write_file(root, path))
      code = tool_cannot(call, GEMMD_SYSTEM, "cannot write %s: %s", path, strerror(errno));
    else if (call->json)
      print_json(call->out, json_pack("{s:o, s:I}", "file", print_json_text(path), "written", (json_int_t)count));
    else
      fprintf(call->out, "%zu tuning%s of %s written to %s\n", count, print_plural(count), name, path);
    json_decref(root);
  }
  free(shapes.list);
  return code;
}

/* ---- import */

/* Those behind it would come to nothing either. */
static bool ends_import(int status) {
  return status == GEMMD_DISCONNECTED || status == GEMMD_PERMISSION || status == GEMMD_TIMEOUT;
}

/* One tuning; gemmd's status. */
static int import_one(const struct tool_call *call, gemmd_session *session, uint32_t device, const json_t *tuning) {
  const char *shape = json_string_value(json_object_get(tuning, "shape"));
  const char *kernel = json_string_value(json_object_get(tuning, "kernel"));
  int status = shape != NULL && kernel != NULL ? gemmd_tune_import(session, device, shape, kernel) : GEMMD_INVALID;
  if (status != GEMMD_OK && !ends_import(status) && !call->json)
    fprintf(stderr, "gemmctl: tune: not taken: %s: %s\n", shape != NULL ? shape : "an entry without a shape",
            shape != NULL && kernel != NULL ? gemmd_error(session) : "shape and kernel must be texts");
  return status;
}

enum tool_exit tune_import(struct tool_call *call, gemmd_session *session, uint32_t device, const char *path) {
  json_error_t where;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
  if (root == NULL)
    return where.line < 0 ? tool_fail(call, TOOL_USAGE, "%s", where.text) /* names the path */
                          : tool_fail(call, TOOL_USAGE, "%s: line %d: %s", path, where.line, where.text);
  const json_t *tunings = json_object_get(root, "tunings");
  if (json_integer_value(json_object_get(root, "version")) != 1 || !json_is_array(tunings)) {
    json_decref(root);
    return tool_fail(call, TOOL_USAGE, "%s is no export of `gemmctl tune export`, version 1", path);
  }
  size_t counts[2] = {0, 0}, count = json_array_size(tunings);
  int status = GEMMD_OK;
  for (size_t i = 0; i < count && !ends_import(status); i++) {
    status = import_one(call, session, device, json_array_get(tunings, i));
    counts[status != GEMMD_OK]++;
  }
  json_decref(root);
  if (ends_import(status))
    return tool_cannot(call, status, "%zu of %zu tuning%s taken: %s", counts[0], count, print_plural(count),
                       gemmd_error(session));
  if (call->json)
    print_json(call->out, json_pack("{s:I, s:I}", "taken", (json_int_t)counts[0], "refused", (json_int_t)counts[1]));
  else
    fprintf(call->out, "%zu tuning%s taken, %zu refused; each serves once it has been checked here\n", counts[0],
            print_plural(counts[0]), counts[1]);
  return counts[0] == 0 && counts[1] > 0 ? TOOL_REFUSED : TOOL_OK;
}
