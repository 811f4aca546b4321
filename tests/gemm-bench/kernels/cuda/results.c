#include "results.h"

#include "client/tool/print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum status results_add(struct results *results, const struct result *row, struct error *error) {
  if (results->count == results->room) {
    int room = results->room * 2 + 64;
    struct result *rows = realloc(results->rows, (size_t)room * sizeof(*rows));
    if (rows == NULL) {
      return error_set(error, STATUS_NOMEM, "no memory for results");
    }
    results->rows = rows;
    results->room = room;
  }
  results->rows[results->count++] = *row;
  return STATUS_OK;
}

void results_free(struct results *results) {
  free(results->rows);
  *results = (struct results){0};
}

static void print_line(FILE *out, const struct result *row) {
  fprintf(out, "%-5s%-6s%6lld x%6lld M %5lld %s>%s%9.2f us  roof %4.2f", gemm_format_name(row->shape.format),
          gemm_scale_name(row->shape.scale), (long long)row->shape.n, (long long)row->shape.k, (long long)row->m,
          gemm_type_name(row->x_type), gemm_type_name(row->y_type), row->us, row->roof_us / row->us);
  for (int i = 0; i < row->rival_count; i++) {
    fprintf(out, "  %s %.2f", row->rivals[i].name, row->rivals[i].us);
    if (row->rivals[i].first_us > 1.02 * row->rivals[i].us) {
      fprintf(out, " (first %.2f)", row->rivals[i].first_us);
    }
    fprintf(out, " x%.2f", row->rivals[i].ratio);
  }
  fprintf(out, "  %s\n", row->kernel);
  fflush(out);
}

void result_print(const struct tool_call *call, const struct result *row) {
  if (!call->json) {
    print_line(call->out, row);
    return;
  }
  json_t *object = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:f, s:f, s:s}", "backend", "cuda", "format",
                             gemm_format_name(row->shape.format), "scale", gemm_scale_name(row->shape.scale), "n",
                             (json_int_t)row->shape.n, "k", (json_int_t)row->shape.k, "m", (json_int_t)row->m, "x_type",
                             gemm_type_name(row->x_type), "y_type", gemm_type_name(row->y_type), "us", row->us,
                             "roof_us", row->roof_us, "kernel", row->kernel);
  json_t *rivals = json_array();
  for (int i = 0; i < row->rival_count; i++) {
    json_array_append_new(rivals,
                          json_pack("{s:s, s:f, s:f, s:f}", "name", row->rivals[i].name, "us", row->rivals[i].us,
                                    "first_us", row->rivals[i].first_us, "ratio", row->rivals[i].ratio));
  }
  json_object_set_new(object, "rivals", rivals);
  print_json(call->out, object);
}

/* ---- means */

struct mean results_mean(const struct results *results, enum gemm_format format, int64_t m, const char *rival) {
  struct mean mean = {.worst = INFINITY};
  double sum = 0;
  for (int i = 0; i < results->count; i++) {
    const struct result *row = &results->rows[i];
    double ratio = rival == NULL ? row->roof_us / row->us : 0;
    for (int r = 0; rival != NULL && r < row->rival_count; r++) {
      ratio = strcmp(row->rivals[r].name, rival) == 0 ? row->rivals[r].ratio : ratio;
    }
    if (row->shape.format != format || (m != 0 && row->m != m) || ratio == 0) {
      continue;
    }
    sum += log(ratio);
    mean.worst = fmin(mean.worst, ratio);
    mean.count++;
  }
  mean.geometric = mean.count > 0 ? exp(sum / mean.count) : 0;
  return mean;
}

static void print_mean(const struct tool_call *call, enum gemm_format format, int64_t m, const char *rival,
                       const struct mean *mean) {
  if (call->json) {
    print_json(call->out, json_pack("{s:s, s:s, s:I, s:i, s:f, s:f}", "mean_of", gemm_format_name(format), "rival",
                                    rival != NULL ? rival : "roof", "m", (json_int_t)m, "count", mean->count,
                                    "geometric", mean->geometric, "worst", mean->worst));
  } else if (m != 0) {
    fprintf(call->out, "  M %lld %.2f (%.2f)", (long long)m, mean->geometric, mean->worst);
  } else {
    fprintf(call->out, "  all %.2f (%.2f)\n", mean->geometric, mean->worst);
  }
}

/* The names of a format's rivals, NULL (the roofline) first. */
static int names_of(const struct results *results, enum gemm_format format, const char **out, int most) {
  int count = 1;
  out[0] = NULL;
  for (int i = 0; i < results->count; i++) {
    for (int r = 0; r < results->rows[i].rival_count && results->rows[i].shape.format == format; r++) {
      int known = 1;
      while (known < count && strcmp(out[known], results->rows[i].rivals[r].name) != 0) {
        known++;
      }
      if (known == count && count < most) {
        out[count++] = results->rows[i].rivals[r].name;
      }
    }
  }
  return count;
}

static bool first_of_m(const struct results *results, enum gemm_format format, int row) {
  for (int i = 0; i < row; i++) {
    if (results->rows[i].shape.format == format && results->rows[i].m == results->rows[row].m) {
      return false;
    }
  }
  return results->rows[row].shape.format == format;
}

void results_print_means(const struct tool_call *call, const struct results *results) {
  const char *names[1 + RIVALS_MOST * 2];
  for (enum gemm_format format = GEMM_FORMAT_INT8; format < (enum gemm_format)GEMM_FORMATS; format++) {
    int count = names_of(results, format, names, 1 + RIVALS_MOST * 2);
    for (int i = 0; i < count; i++) {
      struct mean mean = results_mean(results, format, 0, names[i]);
      if (mean.count == 0) {
        continue;
      }
      if (!call->json) {
        fprintf(call->out, "%-6s%-11s/ ours, geometric mean (worst):", gemm_format_name(format),
                names[i] != NULL ? names[i] : "roof");
      }
      for (int row = 0; row < results->count; row++) {
        if (!first_of_m(results, format, row)) {
          continue;
        }
        mean = results_mean(results, format, results->rows[row].m, names[i]);
        print_mean(call, format, results->rows[row].m, names[i], &mean);
      }
      mean = results_mean(results, format, 0, names[i]);
      print_mean(call, format, 0, names[i], &mean);
    }
  }
}

/* ---- the plot */

enum { WIDE = 560, HIGH = 320, EDGE = 60, M_MOST = 32, SYSTEMS_MOST = 8 };

struct panel {
  enum gemm_format format;
  int64_t m[M_MOST];
  int m_count;
  const char *names[SYSTEMS_MOST]; /* NULL: ours */
  int count;
  double value[SYSTEMS_MOST][M_MOST]; /* time over roofline */
  double most;
};

static int order(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void fill(const struct results *results, enum gemm_format format, struct panel *out) {
  *out = (struct panel){.format = format, .most = 1};
  for (int i = 0; i < results->count && out->m_count < M_MOST; i++) {
    if (first_of_m(results, format, i)) {
      out->m[out->m_count++] = results->rows[i].m;
    }
  }
  qsort(out->m, (size_t)out->m_count, sizeof(*out->m), order);
  out->count = names_of(results, format, out->names, SYSTEMS_MOST);
  for (int i = 0; i < out->count; i++) {
    for (int j = 0; j < out->m_count; j++) {
      double ours = results_mean(results, format, out->m[j], NULL).geometric;
      double theirs = i > 0 ? results_mean(results, format, out->m[j], out->names[i]).geometric : 1;
      out->value[i][j] = ours > 0 ? theirs / ours : 0;
      out->most = fmax(out->most, out->value[i][j]);
    }
  }
  out->most = fmin(ceil(out->most), 12);
}

static void draw(FILE *file, const struct panel *panel, int top) {
  static const char *const colours[SYSTEMS_MOST] = {"#c0392b", "#2c3e50", "#2980b9", "#27ae60",
                                                    "#8e44ad", "#d35400", "#7f8c8d", "#16a085"};
  double step = panel->m_count > 1 ? (double)(WIDE - 2 * EDGE) / (panel->m_count - 1) : 0;
  double unit = (HIGH - 2 * EDGE) / fmax(panel->most - 1, 1);
  int bottom = top + HIGH - EDGE;
  fprintf(file, "<text x='%d' y='%d' font-size='14'>%s: time over roofline, by M</text>\n", EDGE, top + 24,
          gemm_format_name(panel->format));
  for (int y = 1; y <= (int)panel->most; y++) {
    double at = bottom - (y - 1) * unit;
    fprintf(file, "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#ddd'/><text x='%d' y='%.1f'>%d</text>\n", EDGE,
            at, WIDE - EDGE, at, EDGE - 20, at + 4, y);
  }
  for (int j = 0; j < panel->m_count; j++) {
    fprintf(file, "<text x='%.1f' y='%d' text-anchor='middle'>%lld</text>\n", EDGE + j * step, bottom + 18,
            (long long)panel->m[j]);
  }
  for (int i = 0; i < panel->count; i++) {
    fprintf(file, "<polyline fill='none' stroke='%s' stroke-width='%d' points='", colours[i], i == 0 ? 3 : 2);
    for (int j = 0; j < panel->m_count; j++) {
      if (panel->value[i][j] > 0) {
        fprintf(file, "%.1f,%.1f ", EDGE + j * step, bottom - (fmin(panel->value[i][j], panel->most) - 1) * unit);
      }
    }
    fprintf(file, "'/>\n<text x='%d' y='%d' fill='%s'>%s</text>\n", WIDE - EDGE + 8, top + EDGE + 16 * i, colours[i],
            i == 0 ? "ours" : panel->names[i]);
  }
}

enum status results_plot(const struct results *results, const char *path, struct error *error) {
  struct panel panels[GEMM_FORMATS];
  int count = 0;
  for (enum gemm_format format = GEMM_FORMAT_INT8; format < (enum gemm_format)GEMM_FORMATS; format++) {
    fill(results, format, &panels[count]);
    count += panels[count].m_count > 0;
  }
  FILE *file = fopen(path, "w");
  if (file == NULL) {
    return error_set(error, STATUS_SYSTEM, "cannot write %s", path);
  }
  fprintf(file,
          "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' "
          "font-size='11'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
          WIDE + 60, HIGH * count);
  for (int i = 0; i < count; i++) {
    draw(file, &panels[i], HIGH * i);
  }
  fprintf(file, "</svg>\n");
  return fclose(file) == 0 ? STATUS_OK : error_set(error, STATUS_SYSTEM, "cannot write %s", path);
}
