#include "map.h"
#include "kernel_text.h"

#include <stdlib.h>
#include <string.h>

/* Parameters that make a tile, in the order in which families have them. */
static const char *const tile_parameters[] = {"way",     "tile",   "block_m", "block_n", "block_k",
                                              "columns", "groups", "rows",    "blocks",  "tile_m"};

static bool is_of_tile(const char *name) {
  for (size_t i = 0; i < sizeof tile_parameters / sizeof *tile_parameters; i++)
    if (strcmp(name, tile_parameters[i]) == 0)
      return true;
  return false;
}

static bool timed(const gemmd_tune_trial *trial) {
  return trial->ns > 0 && strcmp(trial->state, "timed") == 0;
}

/* Family and tile. */
static void name_row(const char *kernel, char out[MAP_NAME_BYTES]) {
  struct kernel_parameter parameter;
  char family[KERNEL_WORD_BYTES];
  kernel_family(kernel, family);
  size_t used = (size_t)snprintf(out, MAP_NAME_BYTES, "%s", family);
  for (const char *at = kernel; kernel_next(&at, &parameter) && used < MAP_NAME_BYTES;)
    if (is_of_tile(parameter.name))
      used += (size_t)snprintf(out + used, MAP_NAME_BYTES - used, " %s=%ld", parameter.name, parameter.value);
}

/* Slices come in one way or another; families that have one way alone do not name it. */
static int mode_of(const char *kernel) {
  long mode = kernel_value(kernel, "split_k_mode", kernel_value(kernel, "reduction", 0));
  return mode < 0 || mode >= MAP_MODES ? 0 : (int)mode;
}

static bool any_has(const struct tune_trials *trials, const char *name) {
  const long none = -0x7fffffffL;
  for (size_t i = 0; i < trials->count; i++)
    if (timed(&trials->list[i]) && kernel_value(trials->list[i].kernel, name, none) != none)
      return true;
  return false;
}

/* Its place in the list, which grows by it; -1: there is no room. */
static int find_row(struct tune_map *map, const gemmd_tune_trial *trial) {
  char name[MAP_NAME_BYTES];
  name_row(trial->kernel, name);
  for (size_t i = 0; i < map->row_count; i++)
    if (strcmp(map->rows[i].name, name) == 0)
      return (int)i;
  if (map->row_count == MAP_ROWS)
    return -1;
  struct map_row *row = &map->rows[map->row_count];
  memcpy(row->name, name, sizeof row->name);
  row->filling = trial->filling;
  return (int)map->row_count++;
}

static int find_column(const struct tune_map *map, long value) {
  for (size_t i = 0; i < map->column_count; i++)
    if (map->columns[i] == value)
      return (int)i;
  return -1;
}

static int by_value(const void *left, const void *right) {
  long a = *(const long *)left, b = *(const long *)right;
  return (a > b) - (a < b);
}

static long column_of(const struct tune_map *map, const gemmd_tune_trial *trial) {
  long value = kernel_value(trial->kernel, map->across, 1);
  return value < 0 ? 1 : value; /* as the algorithm has it */
}

static void keep_least(uint64_t *cell, uint64_t ns) {
  *cell = *cell == 0 || ns < *cell ? ns : *cell;
}

void tune_map_make(const struct tune_trials *trials, struct tune_map *out) {
  *out = (struct tune_map){.across = any_has(trials, "split_k") || !any_has(trials, "threads") ? "split_k" : "threads"};
  /* Fastest first: so rows come in the order of their fastest, and the columns that count find room. */
  for (size_t i = 0; i < trials->count; i++)
    if (timed(&trials->list[i]) && find_row(out, &trials->list[i]) >= 0 && out->column_count < MAP_COLUMNS &&
        find_column(out, column_of(out, &trials->list[i])) < 0)
      out->columns[out->column_count++] = column_of(out, &trials->list[i]);
  qsort(out->columns, out->column_count, sizeof *out->columns, by_value);
  for (size_t i = 0; i < trials->count; i++) {
    const gemmd_tune_trial *trial = &trials->list[i];
    int row = timed(trial) ? find_row(out, trial) : -1, column = find_column(out, column_of(out, trial));
    out->left_out += timed(trial) && (row < 0 || column < 0);
    if (row < 0 || column < 0)
      continue;
    keep_least(&out->rows[row].ns[column], trial->ns);
    keep_least(&out->rows[row].modes[mode_of(trial->kernel)][column], trial->ns);
    keep_least(&out->fastest, trial->ns);
  }
}

const struct map_row *tune_map_curves(const struct tune_map *map) {
  for (size_t i = 0; i < map->row_count; i++) {
    size_t count = 0;
    for (size_t c = 0; c < map->column_count; c++)
      count += map->rows[i].ns[c] > 0;
    if (count >= 2)
      return &map->rows[i];
  }
  return NULL;
}

bool tune_map_fills(const struct tune_map *map, const struct map_row *row, size_t column) {
  return row->filling > 0 && map->columns[column] == (long)row->filling;
}

bool tune_map_has_mode(const struct tune_map *map, const struct map_row *row, int mode) {
  for (size_t c = 0; c < map->column_count; c++)
    if (row->modes[mode][c] > 0)
      return true;
  return false;
}
