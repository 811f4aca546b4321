#include "block.h"

#include "epilogue.h"

#include <inttypes.h>
#include <stdlib.h>

#define CACHE_LINE 64

const struct block_sizes block_sizes_default = {.block_bytes = 64 << 10, .table_bytes = 128 << 10};

/* Panels whose sums of one group after the other stay in the cache, with tables. */
enum { LOOKUP_PANELS = 128 };

static uint64_t lookup_sums_bytes(void) {
  return (uint64_t)LOOKUP_PANELS * MICRO_TABLE_ROWS * MICRO_WIDTH * sizeof(float);
}

enum status cpu_block_prepare(struct block_space *space, const struct block_sizes *sizes, const struct stage *stage,
                              struct error *error) {
  uint64_t sums = gemm_round_up((uint64_t)stage->rows * MICRO_WIDTH * sizeof(float), CACHE_LINE);
  uint64_t lookup = lookup_sums_bytes(), tables = (uint64_t)sizes->table_bytes;
  uint64_t least = MICRO_TABLE_ROWS * MICRO_PAIRS * MICRO_TABLE * sizeof(float);
  sums = sums > lookup ? sums : lookup;
  tables = tables > least ? tables : least;
  uint64_t bytes = (uint64_t)sizes->block_bytes + sums + tables;
  if (bytes > space->memory_bytes) {
    void *memory = aligned_alloc(CACHE_LINE, bytes);
    if (memory == NULL) {
      return error_set(error, STATUS_NOMEM, "no memory for %" PRIu64 " bytes of blocks", bytes);
    }
    free(space->memory);
    space->memory = memory;
    space->memory_bytes = bytes;
  }
  uint8_t *base = space->memory;
  space->block = (uint32_t *)base;
  space->sums = base + sizes->block_bytes;
  space->tables = (float *)(base + (uint64_t)sizes->block_bytes + sums);
  return STATUS_OK;
}

void cpu_block_free(struct block_space *space) {
  free(space->memory);
  *space = (struct block_space){0};
}

/* ---- tiles */

/* What one panel is computed from. */
struct panel {
  const struct block_task *task;
  struct block_space *space;
  int64_t number;
  int width;
  enum micro_source source;
  int64_t tiles, whole, more;
  int tile_rows;
  int64_t group_steps;      /* 0: the sums run on from group to group */
  bool coded4;              /* INT4A8 */
  struct micro_codes4 form; /* of packed weights */
  bool pieces;              /* K comes in several: sums wait in memory for their next */
  struct epilogue epilogue;
};

/* `whole` tiles of interleaved rows come first. The others are as even as they can be: `more` of them have one row
 * more, and come before the rest. */
static int tile_rows(const struct panel *panel, int64_t tile) {
  return tile < panel->whole ? panel->task->stage->tile_rows : panel->tile_rows + (tile - panel->whole < panel->more);
}

static void run_tile(const struct panel *panel, int64_t number, const struct micro_tile *tile) {
  const struct micro_ops *micro = panel->task->micro;
  enum micro_kind kind = panel->task->stage->kind;
  number < panel->whole ? micro->tile_interleaved[kind](tile) : micro->tile[kind][panel->source](tile);
}

static float *sums_of(const struct panel *panel, int64_t row) {
  return (float *)panel->space->sums + (panel->pieces ? row - panel->task->row_begin : 0) * MICRO_WIDTH;
}

/* f16 scales of a group of a panel of INT2. */
static void widen_scales(const struct panel *panel, int64_t k, float *to) {
  const uint8_t *group = cpu_weight_panel(panel->task->job->weight, panel->number, k);
  panel->task->micro->widen_f16((const uint16_t *)(group + MICRO_GROUP / 4 * panel->width), to, panel->width);
}

/* The sums of one group, scaled. */
static void run_group(const struct panel *panel, int64_t number, struct micro_tile tile, int64_t row, int64_t k,
                      const float *column_scales) {
  const struct stage *stage = panel->task->stage;
  float row_scales[MICRO_ROWS];
  int64_t group = k / MICRO_GROUP;
  if (micro_is_integer(stage->kind)) {
    tile.start = stage->starts + group * stage->rows + row;
    tile.column_scale = column_scales;
  } else {
    float scale = cpu_weight_block_scale(panel->task->job->weight, panel->number, group);
    for (int i = 0; i < tile.rows; i++) {
      row_scales[i] = stage->group_scales[group * stage->rows + row + i] * scale;
    }
    tile.row_scale = row_scales;
  }
  run_tile(panel, number, &tile);
}

/* How the tile multiplies its sums, NULL: not by itself. */
static const struct micro_finish *fuse(const struct panel *panel, int64_t row, int rows, struct micro_finish *finish) {
  if (!panel->epilogue.fused) {
    return NULL;
  }
  cpu_epilogue_fuse(&panel->epilogue, row, rows, sums_of(panel, row), finish);
  return finish;
}

/* What is left to do when a tile has summed up. */
static void end_tile(const struct panel *panel, int64_t row, int rows, const struct micro_finish *finished) {
  if (finished != NULL) {
    cpu_epilogue_narrow(&panel->epilogue, row, rows, sums_of(panel, row));
  } else {
    cpu_epilogue_rows(&panel->epilogue, row, rows, sums_of(panel, row));
  }
}

/* `steps` steps of W from `step` on, at `w`, with every tile of rows. */
static void run_tiles(const struct panel *panel, const void *w, int64_t step, int64_t steps,
                      const float *column_scales) {
  const struct stage *stage = panel->task->stage;
  int64_t k = step * (stage->k / stage->steps);
  bool last = step + steps == stage->steps;
  int64_t row = panel->task->row_begin;
  for (int64_t i = 0; i < panel->tiles; row += tile_rows(panel, i++)) {
    struct micro_finish finish;
    int64_t apart = i < panel->whole ? stage->tile_rows : 1; /* dwords from one step of a row to the next */
    struct micro_tile tile = {.x = stage->values + row * stage->stride + step * apart,
                              .x_stride = stage->stride,
                              .rows = tile_rows(panel, i),
                              .w = w,
                              .width = panel->width,
                              .steps = steps,
                              .sums = sums_of(panel, row),
                              .first = step == 0,
                              .form = &panel->form};
    if (panel->group_steps != 0) {
      run_group(panel, i, tile, row, k, column_scales);
    } else {
      tile.start = micro_is_integer(stage->kind) && step == 0 ? stage->starts + row : NULL;
      tile.finish = last ? fuse(panel, row, tile.rows, &finish) : NULL;
      run_tile(panel, i, &tile);
    }
    if (last) {
      end_tile(panel, row, tile.rows, tile.finish);
    }
  }
}

/* ---- W as dwords */

static const uint32_t *unpack(const struct panel *panel, const uint8_t *w, int64_t steps) {
  const struct micro_ops *micro = panel->task->micro;
  enum micro_kind kind = panel->task->stage->kind;
  uint32_t *to = panel->space->block;
  switch (panel->task->job->weight->shape.format) {
  case GEMM_FORMAT_INT8:
    if (kind == MICRO_WORDS) {
      micro->unpack_u8_words(w, panel->width, steps, to);
      return to;
    }
    return (const uint32_t *)w;
  case GEMM_FORMAT_FP8:
    if (kind == MICRO_BF16) {
      micro->unpack_e4m3_bf16(w, panel->width, steps, to);
    } else {
      micro->unpack_e4m3_f32(w, panel->width, steps, (float *)to);
    }
    return to;
  case GEMM_FORMAT_INT2:
    micro->unpack_codes2_f32(w, panel->width, (int)(steps / MICRO_GROUP), (float *)to);
    return to;
  case GEMM_FORMAT_INT4:
  case GEMM_FORMAT_MXFP4:
  case GEMM_FORMAT_NVFP4:
    micro->unpack_codes4_f32(w, panel->width, (int)(steps / panel->form.group), &panel->form, (float *)to);
    return to;
  case GEMM_FORMAT_INT2A8:
    micro->unpack_codes2(w, panel->width, (int)(steps * 4 / MICRO_GROUP), to);
    return to;
  case GEMM_FORMAT_F16:
    micro->widen_f16((const uint16_t *)w, (float *)to, steps * panel->width);
    return to;
  case GEMM_FORMAT_BF16:
    if (kind == MICRO_F32) {
      micro->unpack_bf16_f32(w, panel->width, steps, (float *)to);
      return to;
    }
    return (const uint32_t *)w;
  default:
    return (const uint32_t *)w; /* no other format there is */
  }
}

/* In which form few rows read W: out of panels. */
static enum micro_source packed_source(enum gemm_format format) {
  static const enum micro_source packed[] = {
      [GEMM_FORMAT_INT8] = MICRO_U8,       [GEMM_FORMAT_FP8] = MICRO_E4M3,      [GEMM_FORMAT_INT2] = MICRO_CODES2,
      [GEMM_FORMAT_INT2A8] = MICRO_DWORDS, [GEMM_FORMAT_F16] = MICRO_F16S,      [GEMM_FORMAT_BF16] = MICRO_BF16_PAIRS,
      [GEMM_FORMAT_INT4] = MICRO_CODES4,   [GEMM_FORMAT_INT4A8] = MICRO_DWORDS, [GEMM_FORMAT_MXFP4] = MICRO_CODES4,
      [GEMM_FORMAT_NVFP4] = MICRO_CODES4};
  return packed[format];
}

int64_t cpu_block_interleaves(const struct micro_ops *micro, const struct block_sizes *sizes, const struct stage *stage,
                              enum gemm_format format, int64_t rows) {
  bool largest = sizes->tile_rows == 0 || sizes->tile_rows >= micro->rows;
  bool few = rows <= micro->few_rows[packed_source(format)];
  return largest && !few && cpu_stage_interleaves(micro, stage->kind, rows) ? rows / micro->rows * micro->rows : 0;
}

/* Which form of W the tiles of this panel read. */
static enum micro_source source_of(const struct panel *panel) {
  const struct block_task *task = panel->task;
  enum micro_source source = packed_source(task->job->weight->shape.format);
  bool few = task->row_end - task->row_begin <= task->micro->few_rows[source] && task->stage->interleaved == 0;
  return few && task->micro->tile[task->stage->kind][source] != NULL ? source : MICRO_DWORDS;
}

/* Whether tiles read W where it is. */
static bool reads_weight(const struct panel *panel) {
  enum gemm_format format = panel->task->job->weight->shape.format;
  enum micro_kind kind = panel->task->stage->kind;
  return panel->source != MICRO_DWORDS || (kind == MICRO_INTEGER && format == GEMM_FORMAT_INT8) ||
         (kind == MICRO_BF16 && format == GEMM_FORMAT_BF16);
}

/* Steps of W at a time: as many as a block has room for, in whole groups; all of them where one tile reads W as it is,
 * which those of sets with small blocks do for two rows. */
static int64_t steps_at_once(const struct panel *panel) {
  const struct stage *stage = panel->task->stage;
  int64_t group = MICRO_GROUP / (stage->k / stage->steps), limit = panel->task->micro->block_steps;
  int64_t most = panel->task->sizes->block_bytes / (panel->width * (int64_t)sizeof(uint32_t)) / group * group;
  most = limit > 0 && limit < most ? limit / group * group : most;
  bool once = panel->tiles == 1 && (limit == 0 || panel->tile_rows <= 2);
  return once && reads_weight(panel) ? stage->steps : most > group ? most : group;
}

static void run_panel(struct panel *panel) {
  const struct stage *stage = panel->task->stage;
  const struct backend_weight *weight = panel->task->job->weight;
  int64_t per_step = stage->k / stage->steps, at_once = steps_at_once(panel);
  float scales[MICRO_WIDTH];
  int64_t begin = panel->task->step_begin, end = panel->task->step_end > 0 ? panel->task->step_end : stage->steps;
  panel->pieces = at_once < stage->steps || panel->group_steps != 0 || end - begin < stage->steps;
  for (int64_t step = begin; step < end; step += at_once) {
    int64_t steps = end - step < at_once ? end - step : at_once;
    const uint8_t *packed = cpu_weight_panel(weight, panel->number, step * per_step);
    const void *w = panel->source == MICRO_DWORDS ? (const void *)unpack(panel, packed, steps) : packed;
    if (panel->group_steps == 0) {
      run_tiles(panel, w, step, steps, NULL);
      continue;
    }
    for (int64_t done = 0; done < steps; done += panel->group_steps) {
      int64_t k = (step + done) * per_step;
      if (micro_is_integer(stage->kind)) {
        widen_scales(panel, k, scales);
      }
      const uint32_t *dwords = (const uint32_t *)w + done * panel->width;
      const void *group =
          panel->source == MICRO_DWORDS ? (const void *)dwords : cpu_weight_panel(weight, panel->number, k);
      run_tiles(panel, group, step + done, panel->group_steps, scales);
    }
  }
}

static void begin_epilogue(const struct block_task *task, int64_t panel, struct epilogue *out) {
  bool scaled = gemm_is_packed(task->job->weight->shape.format); /* group by group, in f32 */
  cpu_epilogue_begin(out, task->micro, task->job, task->stage, task->first, panel,
                     micro_is_integer(task->stage->kind) && !scaled, task->rows_ordinary);
}

/* ---- INT2A8 and INT4A8 by groups */

/* `scales`, [groups][MICRO_WIDTH], go with dwords; NULL: `w` is a panel. */
static void run_groups(const struct panel *panel, const void *w, int64_t group, int groups, const float *scales) {
  const struct stage *stage = panel->task->stage;
  const struct micro_ops *micro = panel->task->micro;
  bool last = group + groups == stage->groups;
  int64_t row = panel->task->row_begin;
  for (int64_t i = 0; i < panel->tiles; row += tile_rows(panel, i++)) {
    struct micro_finish finish;
    struct micro_groups tile = {.x = stage->values + row * stage->stride + group * (panel->form.group / 4),
                                .x_stride = stage->stride,
                                .rows = tile_rows(panel, i),
                                .w = w,
                                .width = panel->width,
                                .groups = groups,
                                .column_scale = scales,
                                .start = stage->starts + group * stage->rows + row,
                                .start_stride = stage->rows,
                                .sums = sums_of(panel, row),
                                .first = group == 0,
                                .form = &panel->form};
    tile.finish = last ? fuse(panel, row, tile.rows, &finish) : NULL;
    panel->coded4    ? micro->groups_codes4(&tile)
    : scales == NULL ? micro->groups_codes2(&tile)
                     : micro->groups_dwords(&tile);
    if (last) {
      end_tile(panel, row, tile.rows, tile.finish);
    }
  }
}

/* Codes of 4 bits are read as they are: all groups in one run, or where several tiles read them as many as stay in the
 * first cache. */
static void run_codes4_panel(struct panel *panel) {
  enum { RUN_MOST = 512 };
  const struct stage *stage = panel->task->stage;
  int64_t group = panel->form.group, at_once = panel->tiles > 1 ? RUN_MOST / group : stage->groups;
  panel->pieces = at_once < stage->groups;
  for (int64_t first = 0; first < stage->groups; first += at_once) {
    int64_t left = stage->groups - first;
    run_groups(panel, cpu_weight_panel(panel->task->job->weight, panel->number, first * group), first,
               (int)(left < at_once ? left : at_once), NULL);
  }
}

/* Few rows read the codes as they are, all groups in one run; for many, W is unpacked some groups at a time. */
static void run_groups_panel(struct panel *panel) {
  enum { GROUPS_MOST = 8 };
  const struct stage *stage = panel->task->stage;
  const struct backend_weight *weight = panel->task->job->weight;
  int64_t room = panel->task->sizes->block_bytes / (MICRO_WIDTH * MICRO_GROUP);
  int64_t at_once = room < GROUPS_MOST ? room : GROUPS_MOST;
  float scales[GROUPS_MOST][MICRO_WIDTH];
  panel->pieces = at_once < stage->groups;
  if (panel->task->row_end - panel->task->row_begin <= MICRO_UNPACK_ROWS) {
    run_groups(panel, cpu_weight_panel(weight, panel->number, 0), 0, (int)stage->groups, NULL);
    return;
  }
  for (int64_t group = 0; group < stage->groups; group += at_once) {
    int groups = (int)(stage->groups - group < at_once ? stage->groups - group : at_once);
    for (int i = 0; i < groups; i++) {
      widen_scales(panel, (group + i) * MICRO_GROUP, scales[i]);
    }
    panel->task->micro->unpack_codes2(cpu_weight_panel(weight, panel->number, group * MICRO_GROUP), panel->width,
                                      groups, panel->space->block);
    run_groups(panel, panel->space->block, group, groups, scales[0]);
  }
}

/* ---- INT2 by tables */

static void lookup_chunk(const struct block_task *task, struct block_space *space, int64_t begin, int64_t end,
                         const float *tables, int rows, int64_t group, int groups) {
  const struct backend_weight *weight = task->job->weight;
  for (int64_t panel = begin; panel < end; panel++) {
    struct micro_lookup lookup = {.tables = tables,
                                  .rows = rows,
                                  .w = cpu_weight_panel(weight, panel, group * MICRO_GROUP),
                                  .width = cpu_layout_width(&weight->layout, &weight->shape, panel),
                                  .groups = groups,
                                  .sums = (float *)space->sums + (panel - begin) * MICRO_TABLE_ROWS * MICRO_WIDTH,
                                  .first = group == 0};
    rows == 1 ? task->micro->lookup_row(&lookup) : task->micro->lookup(&lookup);
  }
}

/* Tables for some rows and groups are made once for all panels from `begin` to `end`. */
static void lookup_rows(const struct block_task *task, struct block_space *space, int64_t begin, int64_t end,
                        const float *x, int rows) {
  const struct stage *stage = task->stage;
  if (rows == 1) {
    lookup_chunk(task, space, begin, end, x, 1, 0, (int)stage->groups);
    return;
  }
  int64_t most = task->sizes->table_bytes / (rows * MICRO_PAIRS * MICRO_TABLE * (int64_t)sizeof(float));
  for (int64_t group = 0; group < stage->groups; group += most) {
    int groups = (int)(stage->groups - group < most ? stage->groups - group : most);
    task->micro->lookup_tables(x + group * MICRO_GROUP, stage->stride, rows, groups, space->tables);
    lookup_chunk(task, space, begin, end, space->tables, rows, group, groups);
  }
}

static void lookup_panels(const struct block_task *task, struct block_space *space, int64_t begin, int64_t end) {
  const struct stage *stage = task->stage;
  for (int64_t row = task->row_begin; row < task->row_end; row += MICRO_TABLE_ROWS) {
    int rows = (int)(task->row_end - row < MICRO_TABLE_ROWS ? task->row_end - row : MICRO_TABLE_ROWS);
    lookup_rows(task, space, begin, end, (const float *)stage->values + row * stage->stride, rows);
    for (int64_t panel = begin; panel < end; panel++) {
      struct epilogue epilogue;
      begin_epilogue(task, panel, &epilogue);
      cpu_epilogue_rows(&epilogue, row, rows, (float *)space->sums + (panel - begin) * MICRO_TABLE_ROWS * MICRO_WIDTH);
    }
  }
}

static bool by_tables(const struct micro_ops *micro, enum gemm_format format) {
  return format == GEMM_FORMAT_INT2 && micro->lookup != NULL;
}

static bool by_groups(const struct micro_ops *micro, enum gemm_format format) {
  return format == GEMM_FORMAT_INT4A8 || (format == GEMM_FORMAT_INT2A8 && micro->groups_dwords != NULL);
}

bool cpu_block_shares(const struct micro_ops *micro, const struct gemm_weight *shape) {
  return by_tables(micro, shape->format);
}

int64_t cpu_block_divides(const struct micro_ops *micro, const struct gemm_weight *shape) {
  return by_tables(micro, shape->format) || by_groups(micro, shape->format) ? 0 : MICRO_GROUP;
}

static void share_rows(struct panel *panel, int most) {
  const struct stage *stage = panel->task->stage;
  int64_t begin = panel->task->row_begin, end = panel->task->row_end;
  int64_t whole_end = stage->interleaved < end ? stage->interleaved : end;
  panel->whole = begin < whole_end ? (whole_end - begin) / stage->tile_rows : 0;
  int64_t rows = end - begin - panel->whole * stage->tile_rows, tiles = (rows + most - 1) / most;
  panel->tiles = panel->whole + tiles;
  panel->tile_rows = tiles > 0 ? (int)(rows / tiles) : 0;
  panel->more = tiles > 0 ? rows % tiles : 0;
}

void cpu_block_run(const struct block_task *task, struct block_space *space, int64_t begin, int64_t end) {
  const struct backend_weight *weight = task->job->weight;
  const struct stage *stage = task->stage;
  int64_t rows = task->row_end - task->row_begin;
  if (rows == 0) {
    return;
  }
  if (by_tables(task->micro, weight->shape.format)) {
    for (int64_t panel = begin; panel < end; panel += LOOKUP_PANELS) {
      lookup_panels(task, space, panel, end - panel < LOOKUP_PANELS ? end : panel + LOOKUP_PANELS);
    }
    return;
  }
  int most = task->micro->rows;
  most = task->sizes->tile_rows > 0 && task->sizes->tile_rows < most ? task->sizes->tile_rows : most;
  bool grouped = weight->shape.format == GEMM_FORMAT_INT2A8 || weight->shape.scale == GEMM_SCALE_BLOCK;
  struct panel panel = {.task = task,
                        .space = space,
                        .coded4 = weight->shape.format == GEMM_FORMAT_INT4A8,
                        .form = {.group = (int)weight->layout.group,
                                 .bf16 = gemm_scale_type(&weight->shape) != GEMM_F16,
                                 .zeros = (int)cpu_layout_zero_bytes(&weight->shape),
                                 .e2m1 = gemm_format_facts(weight->shape.format)->element == GEMM_E2M1}};
  panel.group_steps = grouped ? MICRO_GROUP / (stage->k / stage->steps) : 0;
  panel.source = source_of(&panel);
  bool groups = by_groups(task->micro, weight->shape.format);
  most = groups && most > MICRO_GROUPS_ROWS ? MICRO_GROUPS_ROWS : most;
  most = panel.source != MICRO_DWORDS ? task->micro->unpack_rows[panel.source] : most;
  share_rows(&panel, most);
  for (panel.number = begin; panel.number < end; panel.number++) {
    panel.width = cpu_layout_width(&weight->layout, &weight->shape, panel.number);
    begin_epilogue(task, panel.number, &panel.epilogue);
    panel.coded4 ? run_codes4_panel(&panel) : groups ? run_groups_panel(&panel) : run_panel(&panel);
  }
}
