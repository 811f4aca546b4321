/* tune report: one HTML file, with nothing to fetch, of what was found: a plot a format and shape, a table, and what
 * the last search has tried as a map; without a file that map as text. */
#include "report.h"
#include "draw.h"
#include "shapes.h"

#include "../../tool/print.h"
#include "../output.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 560, HEIGHT = 340, LEFT = 70, RIGHT = 20, TOP = 34, BOTTOM = 44 };

/* A shape's name taken apart. */
struct point {
  char series[160]; /* the shape without its rows */
  char format[8];
  double n, k, m, bytes, operations;
  const gemmd_tune_shape *shape;
};

/* The best that any kernel reached here, a ns. */
struct roof {
  double bytes, operations;
};

static bool parse(const gemmd_tune_shape *shape, struct point *out) {
  char scale[8], x[8], y[8];
  const char *rows = strrchr(shape->shape, 'm');
  *out = (struct point){.shape = shape};
  if (rows == NULL || sscanf(shape->shape, "%7[a-z0-9]-%7[a-z]-%lfx%lf-%7[a-z0-9]-%7[a-z0-9]-", out->format, scale,
                             &out->n, &out->k, x, y) != 6)
    return false;
  out->m = atof(rows + 1);
  snprintf(out->series, sizeof out->series, "%.*s", (int)(rows - shape->shape - 1), shape->shape);
  double code = strncmp(out->format, "int2", 4) == 0 ? 0.25 : strstr(out->format, "f16") != NULL ? 2 : 1;
  double in = strcmp(x, "f32") == 0 ? 4 : strstr(x, "f16") != NULL ? 2 : 1;
  double result = strstr(y, "32") != NULL ? 4 : 2;
  out->bytes = out->n * out->k * code + out->m * out->k * in + out->m * out->n * result;
  out->operations = 2 * out->n * out->k * out->m;
  return true;
}

static int by_series(const void *left, const void *right) {
  const struct point *a = left, *b = right;
  int order = strcmp(a->series, b->series);
  return order != 0 ? order : (a->m > b->m) - (a->m < b->m);
}

static double time_of(const struct point *point, int line) {
  const gemmd_tune_shape *shape = point->shape;
  return (double)(line == 0 ? shape->own_ns : line == 1 ? shape->tuned_ns : shape->library_ns);
}

static struct roof find_roof(const struct point *points, size_t count, const char *format) {
  struct roof roof = {0, 0};
  for (size_t i = 0; i < count; i++)
    for (int line = 0; line < 3; line++) {
      double ns = time_of(&points[i], line);
      if (ns <= 0)
        continue;
      roof.bytes = fmax(roof.bytes, points[i].bytes / ns);
      if (strcmp(points[i].format, format) == 0)
        roof.operations = fmax(roof.operations, points[i].operations / ns);
    }
  return roof;
}

/* The device's where it is known. */
static double roof_ns(const struct point *point, const struct roof *roof) {
  if (point->shape->roof_ns > 0)
    return (double)point->shape->roof_ns;
  return fmax(point->bytes / roof->bytes, point->operations / roof->operations);
}

/* ---- a plot: time against rows, both logarithmic */

struct axes {
  double m_low, m_high, ns_low, ns_high;
};

static double across(const struct axes *axes, double m) {
  double span = log(axes->m_high / axes->m_low);
  return LEFT + (span > 0 ? log(m / axes->m_low) / span : 0.5) * (WIDTH - LEFT - RIGHT);
}

static double down(const struct axes *axes, double ns) {
  return HEIGHT - BOTTOM - log(ns / axes->ns_low) / log(axes->ns_high / axes->ns_low) * (HEIGHT - TOP - BOTTOM);
}

static struct axes find_axes(const struct point *points, size_t count, const struct roof *roof) {
  struct axes axes = {points[0].m, points[count - 1].m, INFINITY, 0};
  for (size_t i = 0; i < count; i++) {
    axes.ns_low = fmin(axes.ns_low, roof_ns(&points[i], roof));
    for (int line = 0; line < 3; line++)
      axes.ns_high = fmax(axes.ns_high, time_of(&points[i], line));
  }
  axes.ns_low /= 1.2;
  axes.ns_high = fmax(axes.ns_high, axes.ns_low * 2) * 1.2;
  return axes;
}

static void write_tick(FILE *file, const struct axes *axes, double ns) {
  char text[PRINT_UNIT_BYTES];
  double y = down(axes, ns);
  if (ns < axes->ns_low || ns > axes->ns_high)
    return;
  fprintf(file,
          "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' class='grid'/><text x='%d' y='%.1f' class='tick' "
          "text-anchor='end'>%s</text>\n",
          LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, print_duration((uint64_t)ns, text));
}

static void write_axes(FILE *file, const struct axes *axes, const struct point *points, size_t count) {
  for (size_t i = 0; i < count; i++)
    fprintf(file, "<text x='%.1f' y='%d' class='tick' text-anchor='middle'>%.0f</text>\n", across(axes, points[i].m),
            HEIGHT - BOTTOM + 16, points[i].m);
  /* Round times: 1, 2 and 5 of each decade, or 1 alone where that is enough. */
  static const int steps[] = {1, 2, 5};
  int most = axes->ns_high / axes->ns_low > 300 ? 1 : 3;
  for (double decade = pow(10, floor(log10(axes->ns_low))); decade < axes->ns_high; decade *= 10)
    for (int i = 0; i < most; i++)
      write_tick(file, axes, decade * steps[i]);
  fprintf(file, "<text x='%d' y='%d' class='tick' text-anchor='middle'>rows</text>\n", (LEFT + WIDTH - RIGHT) / 2,
          HEIGHT - 8);
}

/* False where there is nothing of that line; then its name takes no place. */
static bool write_line(FILE *file, const struct axes *axes, const struct point *points, size_t count,
                       const struct roof *roof, int line, int place) {
  static const char *const names[] = {"first choice", "tuned", "library", "roof"};
  static const char *const colors[] = {"#888", "#0a6", "#c60", "#36c"};
  size_t drawn = 0;
  fprintf(file, "<polyline fill='none' stroke='%s' stroke-width='2'%s points='", colors[line],
          line == 3 ? " stroke-dasharray='5 4'" : "");
  for (size_t i = 0; i < count; i++) {
    double ns = line == 3 ? roof_ns(&points[i], roof) : time_of(&points[i], line);
    if (ns > 0)
      fprintf(file, "%.1f,%.1f ", across(axes, points[i].m), down(axes, ns)), drawn++;
  }
  fprintf(file, "'/>\n");
  for (size_t i = 0; i < count && line < 3; i++)
    if (time_of(&points[i], line) > 0)
      fprintf(file, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'/>\n", across(axes, points[i].m),
              down(axes, time_of(&points[i], line)), colors[line]);
  if (drawn > 0)
    fprintf(file, "<text x='%d' y='%d' fill='%s' class='tick'>%s</text>\n", LEFT + 10 + place * 90, TOP - 8,
            colors[line], names[line]);
  return drawn > 0;
}

static void write_plot(FILE *file, const struct point *points, size_t count, const struct roof *roof) {
  struct axes axes = find_axes(points, count, roof);
  fprintf(file, "<figure><figcaption>%s</figcaption><svg viewBox='0 0 %d %d' width='%d'>\n", points[0].series, WIDTH,
          HEIGHT, WIDTH);
  write_axes(file, &axes, points, count);
  /* What was tuned lies on top. */
  static const int order[] = {3, 2, 0, 1};
  for (size_t i = 0, place = 0; i < sizeof order / sizeof *order; i++)
    place += write_line(file, &axes, points, count, roof, order[i], (int)place);
  fprintf(file, "</svg></figure>\n");
}

/* ---- the file */

static const char head[] =
    "<!doctype html><html lang='en'><meta charset='utf-8'><title>gemmd: tunings</title><style>\n"
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em;color:#222}figure{display:inline-block;margin:0 1em 1em 0}\n"
    "figcaption{font-weight:600}.tick{font-size:11px}text.tick:not([fill]){fill:#555}.grid{stroke:#ddd}\n"
    "table{border-collapse:collapse}td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}\n"
    "td:first-child,td:last-child,th:first-child,th:last-child{text-align:left}</style>\n";

static void write_text(FILE *file, const char *text) {
  for (; *text != '\0'; text++)
    if (*text == '<' || *text == '&' || *text == '>')
      fprintf(file, "&#%d;", *text);
    else
      fputc(*text, file);
}

static void write_row(FILE *file, const struct point *point, const struct roof *roof) {
  char own[PRINT_UNIT_BYTES], tuned[PRINT_UNIT_BYTES], library[PRINT_UNIT_BYTES], best[PRINT_UNIT_BYTES];
  const gemmd_tune_shape *shape = point->shape;
  fprintf(file, "<tr><td>%s</td><td>%llu</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%.2f</td><td>",
          shape->shape, (unsigned long long)shape->calls, print_duration(shape->own_ns, own),
          print_duration(shape->tuned_ns, tuned),
          shape->library_ns > 0 ? print_duration(shape->library_ns, library) : "-",
          print_duration((uint64_t)roof_ns(point, roof), best), (double)shape->own_ns / (double)shape->tuned_ns);
  write_text(file, shape->serves ? shape->kernel : "the first choice");
  fprintf(file, "</td></tr>\n");
}

/* What the last search has tried; with no rows where there is no such table. */
struct last {
  struct tune_trials trials; /* owned */
  struct tune_map map;
};

static void write_page(FILE *file, const gemmd_daemon_info *info, uint32_t device, struct point *points, size_t count,
                       const struct last *last_search) {
  fprintf(file, "%s<h1>Tunings of ", head);
  write_text(file, device < info->devices ? info->device[device].name : "an unknown device");
  fprintf(file, "</h1><p>");
  write_text(file, info->server);
  fprintf(file, ". One product of each shape, behind the quantizer of x. The roof is what memory and arithmetic of "
                "the device deliver at most; where that is not known, the best bandwidth and the best rate of the "
                "format that any kernel reached here.</p>\n");
  for (size_t first = 0, last; first < count; first = last) {
    for (last = first; last < count && strcmp(points[last].series, points[first].series) == 0;)
      last++;
    struct roof roof = find_roof(points, count, points[first].format);
    write_plot(file, points + first, last - first, &roof);
  }
  tune_draw_svg(&last_search->trials, &last_search->map, file);
  fprintf(file, "<table><tr><th>shape<th>calls<th>first choice<th>tuned<th>library<th>roof<th>gain<th>kernel</tr>\n");
  for (size_t i = 0; i < count; i++) {
    struct roof roof = find_roof(points, count, points[i].format);
    write_row(file, &points[i], &roof);
  }
  fprintf(file, "</table>\n");
}

/* False with errno where not all of it could be written; an older file is there then. */
static bool write_file(const char *path, const gemmd_daemon_info *info, uint32_t device, struct point *points,
                       size_t count, const struct last *last_search) {
  struct output output;
  if (!output_open(&output, path))
    return false;
  qsort(points, count, sizeof *points, by_series);
  write_page(output.file, info, device, points, count, last_search);
  return output_close(&output, true);
}

/* The map in the terminal. */
static enum tool_exit draw(struct tool_call *call, gemmd_session *session, uint32_t device) {
  struct tune_trials trials = {.search = {.device = device}};
  struct tune_map map;
  enum tool_exit code = tune_trials_fetch(call, session, &trials);
  if (code == TOOL_OK) {
    tune_map_make(&trials, &map);
    tune_draw_text(&trials, &map, call->out);
  }
  free(trials.list);
  return code;
}

static bool first_alone(void *user, const gemmd_tune_trial *trial) {
  return false;
}

/* A page without a map where no search has ended that somebody asked for. */
static enum tool_exit fetch_last(const struct tool_call *call, gemmd_session *session, uint32_t device,
                                 struct last *out) {
  gemmd_tune_search search = {.device = device};
  *out = (struct last){.trials = {.search = {.device = device}}};
  int status = gemmd_tune_trials(session, &search, first_alone, NULL);
  if (status == GEMMD_NOT_FOUND || status == GEMMD_BUSY)
    return TOOL_OK;
  enum tool_exit code = tune_trials_fetch(call, session, &out->trials);
  if (code == TOOL_OK)
    tune_map_make(&out->trials, &out->map);
  return code;
}

enum tool_exit tune_report(struct tool_call *call, gemmd_session *session, uint32_t device) {
  const char *path = tool_value(call, "html");
  static struct last last_search; /* tens of KiB */
  struct tune_shapes shapes;
  gemmd_daemon_info info;
  size_t count = 0;
  if (path == NULL && call->json)
    return tool_fail(call, TOOL_USAGE, "report --json needs --html FILE; `tune trials --json` has what a search tried");
  if (path == NULL)
    return draw(call, session, device);
  enum tool_exit code = tune_shapes(call, session, device, &shapes);
  int status = code == TOOL_OK ? gemmd_daemon_status(session, &info) : GEMMD_OK;
  if (status != GEMMD_OK)
    code = tool_refused(call, session, status);
  if (code == TOOL_OK)
    code = fetch_last(call, session, device, &last_search);
  struct point *points = calloc(shapes.count + 1, sizeof *points);
  for (size_t i = 0; i < shapes.count && points != NULL; i++)
    count += shapes.list[i].own_ns > 0 && shapes.list[i].tuned_ns > 0 && parse(&shapes.list[i], &points[count]);
  if (code == TOOL_OK && count == 0)
    code = tool_cannot(call, GEMMD_NOT_FOUND, "nothing has been tuned yet");
  else if (code == TOOL_OK && !write_file(path, &info, device, points, count, &last_search))
    code = tool_cannot(call, GEMMD_SYSTEM, "cannot write %s: %s", path, strerror(errno));
  else if (code == TOOL_OK && call->json)
    print_json(call->out, json_pack("{s:o, s:I}", "file", print_json_text(path), "written", (json_int_t)count));
  else if (code == TOOL_OK)
    fprintf(call->out, "%zu shape%s in %s\n", count, print_plural(count), path);
  free(points);
  free(shapes.list);
  free(last_search.trials.list);
  return code;
}
