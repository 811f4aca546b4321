#include "draw.h"

#include "../../tool/print.h"

#include <math.h>
#include <string.h>

enum { CELL_WIDTH = 46, CELL_HEIGHT = 18, NAMES_WIDTH = 330, HEAD = 22 };
enum { WIDTH = 560, HEIGHT = 300, LEFT = 70, RIGHT = 20, TOP = 34, BOTTOM = 44 };

static const char *const mode_names[MAP_MODES] = {"serial", "parallel", "parallel in y's type", "other"};

/* ---- text */

/* How far from the fastest, at a glance. */
static char shade(double ratio) {
  return ratio <= 1.05 ? '#' : ratio <= 1.25 ? '+' : ratio <= 2 ? '-' : '.';
}

static void cell_text(const struct tune_map *map, const struct map_row *row, size_t column, struct print_table *table) {
  bool fills = tune_map_fills(map, row, column);
  double ratio = (double)row->ns[column] / (double)map->fastest;
  if (row->ns[column] == 0)
    print_cell(table, "%s", "");
  else if (ratio < 9.995)
    print_cell(table, "%s%.2f%c", fills ? "w " : "", ratio, shade(ratio));
  else
    print_cell(table, "%s>10%c", fills ? "w " : "", shade(ratio));
}

static void map_text(const struct tune_map *map, FILE *out) {
  char align[MAP_COLUMNS + 2] = "l";
  struct print_table table;
  memset(align + 1, 'r', map->column_count);
  align[map->column_count + 1] = '\0';
  print_table_begin(&table, align);
  print_cell(&table, "%s:", map->across);
  for (size_t c = 0; c < map->column_count; c++)
    print_cell(&table, "%ld", map->columns[c]);
  for (size_t r = 0; r < map->row_count; r++) {
    print_cell(&table, "%s", map->rows[r].name);
    for (size_t c = 0; c < map->column_count; c++)
      cell_text(map, &map->rows[r], c, &table);
  }
  print_table_end(&table, out);
}

static void curves_text(const struct tune_map *map, FILE *out) {
  const struct map_row *row = tune_map_curves(map);
  char align[MAP_MODES + 3] = "r", time[PRINT_UNIT_BYTES];
  size_t count = 1;
  struct print_table table;
  if (row == NULL)
    return;
  for (int mode = 0; mode < MAP_MODES; mode++)
    if (tune_map_has_mode(map, row, mode))
      align[count++] = 'r';
  align[count] = 'l';
  align[count + 1] = '\0';
  fprintf(out, "\n%s, time over %s%s:\n", row->name, map->across, count > 2 ? " by mode" : "");
  print_table_begin(&table, align);
  print_cell(&table, "%s", map->across);
  for (int mode = 0; mode < MAP_MODES; mode++)
    if (tune_map_has_mode(map, row, mode))
      print_cell(&table, "%s", count > 2 ? mode_names[mode] : "time");
  print_cell(&table, "%s", "");
  for (size_t c = 0; c < map->column_count; c++) {
    if (row->ns[c] == 0)
      continue;
    print_cell(&table, "%ld", map->columns[c]);
    for (int mode = 0; mode < MAP_MODES; mode++)
      if (tune_map_has_mode(map, row, mode))
        print_cell(&table, "%s", row->modes[mode][c] > 0 ? print_duration(row->modes[mode][c], time) : "");
    print_cell(&table, "%s", tune_map_fills(map, row, c) ? "<- fills one wave" : "");
  }
  print_table_end(&table, out);
}

void tune_draw_text(const struct tune_trials *trials, const struct tune_map *map, FILE *out) {
  char time[PRINT_UNIT_BYTES];
  fprintf(out, "%s, search %llu: time over the fastest, %s; # within 5 %%, + 25 %%, - twice as long, . longer%s\n\n",
          trials->search.shape, (unsigned long long)trials->search.number, print_duration(map->fastest, time),
          strcmp(map->across, "split_k") == 0 ? "; w: fills one wave" : "");
  map_text(map, out);
  if (map->left_out > 0)
    fprintf(out, "%zu slower candidates have no place here; --csv has all\n", map->left_out);
  curves_text(map, out);
}

/* ---- SVG */

static void write_text(FILE *out, const char *text) {
  for (; *text != '\0'; text++)
    if (*text == '<' || *text == '&' || *text == '>' || *text == '\'')
      fprintf(out, "&#%d;", *text);
    else
      fputc(*text, out);
}

static void cell_svg(const struct tune_map *map, size_t r, size_t c, FILE *out) {
  const struct map_row *row = &map->rows[r];
  char time[PRINT_UNIT_BYTES];
  double ratio = (double)row->ns[c] / (double)map->fastest, far = fmin(log2(ratio) / 2, 1);
  bool fills = tune_map_fills(map, row, c);
  if (row->ns[c] == 0)
    return;
  int x = NAMES_WIDTH + (int)c * CELL_WIDTH, y = HEAD + (int)r * CELL_HEIGHT;
  fprintf(out, "<rect x='%d' y='%d' width='%d' height='%d' fill='hsl(%.0f,70%%,70%%)'%s><title>", x, y, CELL_WIDTH - 1,
          CELL_HEIGHT - 1, 130 * (1 - far), fills ? " stroke='#000' stroke-width='2'" : "");
  write_text(out, row->name);
  fprintf(out, ", %s %ld: %s%s</title></rect><text x='%d' y='%d' class='tick' text-anchor='middle'>%.2f</text>\n",
          map->across, map->columns[c], print_duration(row->ns[c], time), fills ? ", fills one wave" : "",
          x + CELL_WIDTH / 2, y + 13, ratio);
}

static void map_svg(const struct tune_trials *trials, const struct tune_map *map, FILE *out) {
  int width = NAMES_WIDTH + (int)map->column_count * CELL_WIDTH, height = HEAD + (int)map->row_count * CELL_HEIGHT;
  fprintf(out, "<figure><figcaption>");
  write_text(out, trials->search.shape);
  fprintf(out,
          ": all that the last search tried, time over the fastest, by tile and %s; framed: fills one wave"
          "</figcaption><svg viewBox='0 0 %d %d' width='%d'>\n",
          map->across, width, height, width);
  for (size_t c = 0; c < map->column_count; c++)
    fprintf(out, "<text x='%d' y='14' class='tick' text-anchor='middle'>%ld</text>\n",
            NAMES_WIDTH + (int)c * CELL_WIDTH + CELL_WIDTH / 2, map->columns[c]);
  for (size_t r = 0; r < map->row_count; r++) {
    fprintf(out, "<text x='%d' y='%d' class='tick' text-anchor='end'>", NAMES_WIDTH - 6,
            HEAD + (int)r * CELL_HEIGHT + 13);
    write_text(out, map->rows[r].name);
    fprintf(out, "</text>\n");
    for (size_t c = 0; c < map->column_count; c++)
      cell_svg(map, r, c, out);
  }
  fprintf(out, "</svg></figure>\n");
}

struct scale {
  double low, high; /* of the axis, both above 0 and logarithmic */
};

static double across(const struct tune_map *map, const struct scale *slices, size_t column) {
  double value = log((double)map->columns[column] + 1) - log(slices->low + 1);
  return LEFT + value / (log(slices->high + 1) - log(slices->low + 1)) * (WIDTH - LEFT - RIGHT);
}

static double down(const struct scale *times, double ns) {
  return HEIGHT - BOTTOM - log(ns / times->low) / log(times->high / times->low) * (HEIGHT - TOP - BOTTOM);
}

static void curve_svg(const struct tune_map *map, const struct map_row *row, const struct scale *slices,
                      const struct scale *times, int mode, FILE *out) {
  static const char *const colors[MAP_MODES] = {"#36c", "#0a6", "#c60", "#888"};
  fprintf(out, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colors[mode]);
  for (size_t c = 0; c < map->column_count; c++)
    if (row->modes[mode][c] > 0)
      fprintf(out, "%.1f,%.1f ", across(map, slices, c), down(times, (double)row->modes[mode][c]));
  fprintf(out, "'/><text x='%d' y='%d' fill='%s' class='tick'>%s</text>\n", LEFT + 10 + mode * 110, TOP - 8,
          colors[mode], mode_names[mode]);
}

static void curves_svg(const struct tune_map *map, FILE *out) {
  const struct map_row *row = tune_map_curves(map);
  char time[PRINT_UNIT_BYTES];
  if (row == NULL)
    return;
  struct scale slices = {(double)map->columns[0], (double)map->columns[map->column_count - 1]}, times = {INFINITY, 0};
  for (int mode = 0; mode < MAP_MODES; mode++)
    for (size_t c = 0; c < map->column_count; c++)
      if (row->modes[mode][c] > 0) {
        times.low = fmin(times.low, (double)row->modes[mode][c]);
        times.high = fmax(times.high, (double)row->modes[mode][c]);
      }
  times.low /= 1.05;
  times.high *= 1.05;
  fprintf(out, "<figure><figcaption>");
  write_text(out, row->name);
  fprintf(out, ": time over %s</figcaption><svg viewBox='0 0 %d %d' width='%d'>\n", map->across, WIDTH, HEIGHT, WIDTH);
  for (int tick = 0; tick < 4; tick++) {
    double ns = times.low * pow(times.high / times.low, (tick + 0.5) / 4);
    fprintf(out,
            "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' class='grid'/><text x='%d' y='%.1f' class='tick' "
            "text-anchor='end'>%s</text>\n",
            LEFT, WIDTH - RIGHT, down(&times, ns), down(&times, ns), LEFT - 6, down(&times, ns) + 4,
            print_duration((uint64_t)ns, time));
  }
  for (size_t c = 0; c < map->column_count; c++) {
    double x = across(map, &slices, c);
    if (tune_map_fills(map, row, c))
      fprintf(out, "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' stroke='#000' stroke-dasharray='4 3'/>\n", x, x, TOP,
              HEIGHT - BOTTOM);
    fprintf(out, "<text x='%.1f' y='%d' class='tick' text-anchor='middle'>%ld%s</text>\n", x, HEIGHT - BOTTOM + 16,
            map->columns[c], tune_map_fills(map, row, c) ? " (one wave)" : "");
  }
  for (int mode = 0; mode < MAP_MODES; mode++)
    if (tune_map_has_mode(map, row, mode))
      curve_svg(map, row, &slices, &times, mode, out);
  fprintf(out, "</svg></figure>\n");
}

void tune_draw_svg(const struct tune_trials *trials, const struct tune_map *map, FILE *out) {
  if (map->row_count == 0)
    return;
  map_svg(trials, map, out);
  curves_svg(map, out);
}
