#include "config.h"
#include "behind.h"

#include "../../../heuristics/clusters.h"
#include "../../../heuristics/ranking.h"

#include <math.h>

enum { STEP = HOPPER_STEP, GROUP_ROWS = HOPPER_GROUP_ROWS };

bool hopper_takes(const struct kernel_problem *problem) {
  return problem->device.capability == 90 &&
         (problem->format == GEMM_FORMAT_FP8 || problem->format == GEMM_FORMAT_INT8) &&
         !kernel_problem_cancels(problem);
}

static int columns_for(int64_t m, enum gemm_scale scale) {
  int columns = 8;
  while (columns < m && columns < hopper_columns_most(scale))
    columns *= 2;
  return columns;
}

/* Rounds of blocks on the busiest multiprocessor. All at once: whole ones. Else a block begins where one ends, so that
 * the last round is late by a part of a block. */
static double rounds(int64_t blocks, int64_t together, double sms) {
  double even = (double)blocks / sms, whole = ceil(even);
  return (double)blocks <= sms * (double)together ? whole : 0.77 * whole + 0.23 * even;
}

/* Whether products in a row are configured for that: few rows of x, and blocks of 64 rows of W that fill the device
 * once. With more rows of x other configurations than alone were 1 to 5 % better, with fewer blocks some were, but what
 * this model picks there took up to 22 % longer. */
enum { IN_ROW_COLUMNS = 16 };
static bool configured_in_row(const struct kernel_problem *problem, int columns) {
  int sms = problem->device.multiprocessors;
  int64_t blocks = (problem->n + GROUP_ROWS - 1) / GROUP_ROWS;
  return problem->in_row && columns <= IN_ROW_COLUMNS && blocks <= sms && 10 * blocks >= 9 * (int64_t)sms;
}

/* What a launch in a row loses, in microseconds. Its blocks start as those of the product ahead end, so that one of two
 * warpgroups comes later than two of one, and have asked for `fetched` of `all` KB of W in a multiprocessor when x is
 * there. */
static double lost_in_row(const struct hopper_config *config, double fetched, double all) {
  double late = fmax(0, 1 - fetched / fmin(67.5, all));
  return 3.2 * late + (config->groups > 1 ? 0.4 : 0) + (config->ahead > 4 ? 0.08 : 0);
}

/* Microseconds by a model: what W takes to come from memory, and what the busiest multiprocessor takes to read its rows
 * of W and, at prices of their own, of x and a step, which depends on how much is under way there; the two overlap in
 * part. To that, joining the sums of clusters, which counts by the rows of x, and what is lost with rings of more than
 * 132 KB and with three warpgroups. Fitted to 3451 timings of 15 shapes of W and M = 1, 16, 32, 64, 128 in an H200:
 * what it picks of them takes 1.2 % longer than the best on average, 7 % at worst. In a row, N = 8192,
 * M = 1 and 8: what it picks takes 4 to 17 % less than what it picks alone. */
double hopper_us(const struct hopper_config *config, const struct kernel_problem *problem) {
  int columns = config->columns, sms = problem->device.multiprocessors;
  int64_t tiles = (problem->n + config->rows - 1) / config->rows, tiles_of_x = (problem->m + columns - 1) / columns;
  int64_t blocks = tiles * tiles_of_x * config->split_k, together = hopper_resident(config, problem->scale);
  bool in_row = configured_in_row(problem, columns);
  int64_t steps = ((problem->k_padded + STEP - 1) / STEP + config->split_k - 1) / config->split_k;
  double waves = (double)blocks / sms, turns = rounds(blocks, together, clusters_usable(sms, config->split_k));
  double rings = waves < 1 ? 1 : fmin((double)together, waves);
  double under_way = rings * config->ahead * (config->rows + columns) * STEP / 1024.0;
  double bytes = (double)(steps * STEP) * (config->rows + 7.65 * columns + 59);
  double reading = turns * bytes / (470e3 * fmin(1, sqrt(under_way / 146)));
  double coming = (double)problem->n * (double)problem->k_padded / 4.22e6;
  double us = 2.46 + pow(pow(reading, 1.79) + pow(coming, 1.79), 1 / 1.79);
  if (config->split_k > 1) {
    int64_t rows_of_x = problem->m < columns ? (problem->m + 7) / 8 * 8 : columns;
    double slices = config->split_k, sent = (double)rows_of_x / 64 * (slices - 1) / slices;
    sent *= fmin(1, coming / 2); /* few blocks send little at a time */
    us += (0.033 * log2(slices) + (in_row ? 1.5 : 2.03) * sent) * fmax(1, waves / (double)together);
  }
  if (in_row) {
    double each = (double)(steps < config->ahead ? steps : config->ahead) * config->rows * STEP / 1024.0;
    double all = (double)problem->n * (double)problem->k_padded / sms / 1024.0;
    us += lost_in_row(config, fmin(waves, (double)together) * each, all);
  }
  double ring = (config->ahead + 1) * (config->rows + columns) * STEP / 1024.0;
  return us + fmax(0, ring - 132) / 83 + (config->groups == 3 ? 0.3 : 0);
}

/* Rows of W a block, so that all blocks make up so many rounds. */
static int rows_filling(const struct kernel_problem *problem, int rounds_wanted, int split_k, int most) {
  int sms = problem->device.multiprocessors;
  int64_t tiles = (int64_t)(clusters_usable(sms, split_k) * rounds_wanted) / split_k;
  int64_t rows = tiles < 1 ? problem->n : (problem->n + tiles - 1) / tiles;
  return rows > most ? most : (int)((rows + 7) / 8 * 8);
}

struct search {
  const struct kernel_problem *problem;
  struct hopper_config best; /* rows 0: none yet */
  double best_us;
};

static void consider(struct search *search, int rows, int split_k, int ahead) {
  struct hopper_config config = {.columns = columns_for(search->problem->m, search->problem->scale),
                                 .groups = (rows + GROUP_ROWS - 1) / GROUP_ROWS,
                                 .rows = rows,
                                 .split_k = split_k,
                                 .ahead = ahead};
  int64_t blocks = (search->problem->n + rows - 1) / rows * split_k;
  /* Many clusters are slow to start: the model does not know that. */
  int64_t most = (split_k > 2 ? 2 : 8) * (int64_t)search->problem->device.multiprocessors;
  if (!hopper_config_valid(&config, search->problem->scale) || (split_k > 1 && blocks > most))
    return;
  double us = hopper_us(&config, search->problem);
  if (search->best.rows == 0 || us < search->best_us) {
    search->best = config;
    search->best_us = us;
  }
}

/* Two blocks of one group rather than one of two, where a multiprocessor holds both and all run at the same time: the
 * same work, but each goes on without waiting for the other. On an H200 0 to 5 % less. In a row with more ahead, 3 to
 * 5 % less; not with blocks of 8 steps and fewer than 32 columns (7 % more), nor with 64 columns (up to 13 % more). Not
 * from 32 columns on where three share K and there is room for two of them alone: 74 such clusters did not all start at
 * once (4096x14336, M = 32: 29.0 to 29.8 us for 20.1; 4096x4096, M = 48: 10.6 for 8.8 of another). */
static bool halve(struct hopper_config *config, const struct kernel_problem *problem) {
  enum { COLUMNS_MOST = 64, ROW_COLUMNS_MOST = 32, ROW_STEPS = 10, THREE = 3 };
  struct hopper_config half = *config;
  int64_t blocks = (problem->n + config->rows - 1) / config->rows * config->split_k;
  bool narrow = config->columns < ROW_COLUMNS_MOST;
  half.groups = 1;
  half.rows = config->rows / 2;
  if (problem->in_row)
    half.ahead = narrow ? 4 : config->ahead > 3 ? config->ahead : 3;
  bool fits = config->groups == 2 && config->split_k > 1 && problem->m <= config->columns &&
              config->columns <= (problem->in_row ? ROW_COLUMNS_MOST : COLUMNS_MOST) &&
              (double)blocks <= clusters_usable(problem->device.multiprocessors, config->split_k) &&
              (!problem->in_row || !narrow || problem->k_padded >= (int64_t)ROW_STEPS * STEP * config->split_k) &&
              hopper_config_valid(&half, problem->scale) && hopper_halves_behind(&half, problem) &&
              hopper_resident(&half, problem->scale) >= (config->split_k == THREE && !narrow ? THREE : 2);
  if (fits)
    *config = half;
  return fits;
}

/* Two blocks that share K rather than one that has it whole, where K is short and blocks of 64 rows fill the device
 * once: the other way round 1 to 3 % less at 32 and 64 rows of x (8192 rows of W, K = 3072 to 4096; equal or more at
 * 5120). */
static void unshare(struct hopper_config *config, const struct kernel_problem *problem) {
  enum { STEPS_MOST = 16 };
  int sms = problem->device.multiprocessors;
  struct hopper_config whole = *config;
  whole.split_k = 1;
  whole.ahead = config->columns == 64 ? 3 : 4;
  int64_t blocks = (problem->n + config->rows - 1) / config->rows;
  if ((config->columns == 32 || config->columns == 64) && config->groups == 1 && config->rows == GROUP_ROWS &&
      config->split_k == 2 && problem->m <= config->columns && blocks <= sms && 10 * blocks >= 9 * (int64_t)sms &&
      problem->k_padded <= (int64_t)STEPS_MOST * STEP && hopper_config_valid(&whole, problem->scale))
    *config = whole;
}

/* In a row two blocks of 64 rows that share a short K, where these fill the device once, rather than three of more
 * rows: 4096x4097, M = 64, 7.1 us for 7.5. */
static void pair(struct hopper_config *config, const struct kernel_problem *problem) {
  enum { COLUMNS = 64, THREE = 3, STEPS_MOST = 20 };
  const struct hopper_config two = {COLUMNS, 1, GROUP_ROWS, 2, 3};
  int sms = problem->device.multiprocessors;
  int64_t blocks = (problem->n + GROUP_ROWS - 1) / GROUP_ROWS * two.split_k;
  if (config->columns == COLUMNS && config->split_k == THREE && problem->m <= COLUMNS && blocks <= sms &&
      10 * blocks >= 9 * (int64_t)sms && problem->k_padded <= (int64_t)STEPS_MOST * STEP &&
      hopper_config_valid(&two, problem->scale))
    *config = two;
}

/* Fewer steps ahead than K has, where a block has it whole: with two to four steps 0 to 5 % less, with five and six 2 %
 * less to 1 % more. With 16 columns four steps ahead rather than six: 0 to 2 % less. */
static void hold_back(struct hopper_config *config, const struct kernel_problem *problem) {
  if (config->split_k > 1)
    return;
  if (config->ahead > 3 && problem->k_padded <= 4 * STEP)
    config->ahead = 3;
  if (config->ahead > 4 && (problem->k_padded <= 6 * STEP || config->columns == 16))
    config->ahead = 4;
}

/* Small blocks that share K where W is so large that it takes many of them after each other: they end at about the same
 * time whatever the number of rows is. us, M = 1, the model's choice in brackets: 43008x8192 78.7 (85.7), 57344x8192
 * 103.5 (105.4), 128256x8192 227 (230), 152064x3584 119 (121). */
static void scatter(struct hopper_config *config, const struct kernel_problem *problem) {
  enum { WAVES = 10, LONG_K = 8192 };
  int sms = problem->device.multiprocessors;
  const int64_t least_bytes = (int64_t)300 << 20;
  bool longer = problem->k_padded >= LONG_K;
  const struct hopper_config small = problem->m <= 8 ? (struct hopper_config){8, 1, 56, longer ? 2 : 3, 2}
                                                     : (struct hopper_config){16, 1, 64, longer ? 6 : 4, 2};
  if (problem->m <= 16 && problem->scale != GEMM_SCALE_BLOCK && problem->n * problem->k_padded >= least_bytes &&
      problem->n / small.rows * small.split_k >= WAVES * (int64_t)sms && hopper_config_valid(&small, problem->scale))
    *config = small;
}

/* More blocks that share K, with less under way each, where the model would have two with a ring of six steps: these
 * find no room beside the blocks of the kernels ahead. In chains on an H200, 4096x4096: 1.2 of 7 us less at M = 1 to
 * 16. */
static void share_more(struct hopper_config *config, const struct kernel_problem *problem) {
  enum { COLUMNS_FEW = 8, COLUMNS_MOST = 16, AHEAD = 6 };
  struct hopper_config more = {config->columns, 1, 48, 4, 3};
  if (config->columns > COLUMNS_FEW)
    more = (struct hopper_config){config->columns, 1, 64, 3, 4};
  if (config->columns <= COLUMNS_MOST && config->groups == 1 && config->split_k == 2 && config->ahead == AHEAD &&
      problem->m <= config->columns && problem->k_padded >= (int64_t)more.split_k * more.ahead * STEP &&
      hopper_config_valid(&more, problem->scale))
    *config = more;
}

/* What measurements know and the model does not. */
static struct hopper_config corrected(struct hopper_config config, const struct kernel_problem *problem) {
  enum { SHARED_BY_MANY = 4, ROW_AHEAD_MOST = 3 };
  /* Less under way leaves the next product's blocks room sooner: 0 to 9 % less where many blocks share K, 11 % more
   * where two do. */
  if (!halve(&config, problem) && problem->in_row && config.groups == 2 && config.split_k >= SHARED_BY_MANY &&
      config.ahead > ROW_AHEAD_MOST)
    config.ahead = ROW_AHEAD_MOST;
  if (problem->in_row) {
    share_more(&config, problem);
    pair(&config, problem);
  }
  if (!problem->in_row) {
    unshare(&config, problem);
    hold_back(&config, problem);
    scatter(&config, problem);
  }
  hopper_adjust_behind(&config, problem);
  return config;
}

struct hopper_config hopper_configure(const struct kernel_problem *problem) {
  static const int aheads[] = {2, 3, 4, 6};
  struct search search = {.problem = problem};
  int most = GROUP_ROWS * hopper_groups_most(columns_for(problem->m, problem->scale), problem->scale);
  for (int split_k = 1; split_k <= 8; split_k += split_k < 4 ? 1 : 2) {
    for (size_t i = 0; i < sizeof aheads / sizeof *aheads; i++) {
      for (int rounds_wanted = 1; rounds_wanted <= 8; rounds_wanted++) {
        int rows = rows_filling(problem, rounds_wanted, split_k, most);
        if (rows >= 16)
          consider(&search, rows, split_k, aheads[i]);
      }
      for (int rows = GROUP_ROWS / 2; rows <= most; rows += GROUP_ROWS / 2)
        consider(&search, rows, split_k, aheads[i]);
    }
  }
  return corrected(search.best, problem);
}

static bool same(const struct hopper_config *a, const struct hopper_config *b) {
  return a->columns == b->columns && a->groups == b->groups && a->rows == b->rows && a->split_k == b->split_k &&
         a->ahead == b->ahead;
}

/* ---- starts */

/* Behind the quantizer of a chain of products the device's memory rests for two to three microseconds: the ring is full
 * and x is not there. Where blocks are all there at once and have a long way to go behind their rings, the next 512
 * bytes of each row go into the L2 meanwhile; where no clusters wait for each other, either, the next kernel's blocks
 * come when the ring holds the last steps rather than at once, so that their copies follow these. In chains on an H200,
 * 28672x4096: M = 1 3 % of the whole chain of four layers, M = 16 5 %; 4096x14336, three blocks that share K, the first
 * alone, 1 %. With fewer steps, or blocks that come in turns, up to 10 % more. */
struct hopper_start hopper_start_of(const struct hopper_config *config, const struct kernel_problem *problem,
                                    bool dependent) {
  enum { ROWS_MOST = 16, STEPS_LEFT = 12, BEYOND = 2 * STEP };
  struct hopper_start start = {.dependent = dependent};
  int64_t blocks = (problem->n + config->rows - 1) / config->rows * config->split_k;
  int64_t steps = (problem->k_padded + STEP - 1) / STEP / config->split_k;
  bool at_once = blocks <= (int64_t)problem->device.multiprocessors * hopper_resident(config, problem->scale);
  if (!dependent || problem->m > ROWS_MOST || !at_once || steps < config->ahead + STEPS_LEFT)
    return start;
  start.beyond = BEYOND;
  start.let = config->split_k == 1 ? config->ahead : 0;
  return start;
}

/* ---- candidates */

static int split_after(int split_k) {
  return split_k < 4 ? split_k + 1 : split_k + 2;
}

/* All that can run with so many columns. */
static void visit(const struct kernel_problem *problem, int columns,
                  void (*see)(void *user, const struct hopper_config *each, double us), void *user) {
  static const int aheads[] = {2, 3, 4, 6};
  for (int groups = 1; groups <= hopper_groups_most(columns, problem->scale); groups++)
    for (int rows = 16; rows <= groups * GROUP_ROWS; rows += 8)
      for (int split_k = 1; split_k <= 8; split_k = split_after(split_k))
        for (int i = 0; i < 4; i++) {
          const struct hopper_config each = {columns, groups, rows, split_k, aheads[i]};
          if (hopper_config_valid(&each, problem->scale))
            see(user, &each, hopper_us(&each, problem));
        }
}

/* Among the candidates: the best whatever they are, the best of each number of blocks that share K with each number of
 * warpgroups, and those with half and with twice the columns that hold all rows. The model ranks well within such a
 * class and badly across: on an H200 another was 1 to 10 % faster than the best of its first 24 for seven products,
 * 50th to 505th of all by its order, and 1st to 7th of its class. */
enum { ANY = 8, EACH_CLASS = 3, EACH_CLASS_OF_MANY = 2, CLASSES = 9 * 4, OTHER_COLUMNS = 2 };

struct shortlist {
  int each_class;
  int any_count, class_count[CLASSES];
  struct hopper_config any[ANY], of_class[CLASSES][EACH_CLASS];
  double any_us[ANY], of_class_us[CLASSES][EACH_CLASS];
};

static void shortlist_see(void *user, const struct hopper_config *each, double us) {
  struct shortlist *list = user;
  int class = each->split_k * 4 + each->groups - 4, *in_class = &list->class_count[class];
  list->any_count = ranking_insert(list->any, list->any_us, sizeof *each, list->any_count, ANY, each, us);
  *in_class = ranking_insert(list->of_class[class], list->of_class_us[class], sizeof *each, *in_class, list->each_class,
                             each, us);
}

struct best {
  int count, most;
  struct hopper_config list[HOPPER_ALL];
  double us[HOPPER_ALL];
};

static void best_see(void *user, const struct hopper_config *each, double us) {
  struct best *best = user;
  best->count = ranking_insert(best->list, best->us, sizeof *each, best->count, best->most, each, us);
}

/* Those that are not there yet. */
static int append(const struct hopper_config *from, int from_count, struct hopper_config *out, int count, int most) {
  for (int i = 0; i < from_count; i++) {
    bool there = false;
    for (int j = 0; j < count; j++)
      there |= same(&from[i], &out[j]);
    if (!there && count < most)
      out[count++] = from[i];
  }
  return count;
}

/* Behind out[0], which is there. */
static int shortlist(const struct kernel_problem *problem, struct hopper_config *out, int most) {
  int usual = columns_for(problem->m, problem->scale), highest = hopper_columns_most(problem->scale), count = 1;
  struct shortlist list = {.each_class =
                               hopper_groups_most(usual, problem->scale) > 2 ? EACH_CLASS_OF_MANY : EACH_CLASS};
  visit(problem, usual, shortlist_see, &list);
  count = append(list.any, list.any_count, out, count, most);
  for (int class = 0; class < CLASSES; class ++)
    count = append(list.of_class[class], list.class_count[class], out, count, most);
  for (int columns = usual / 2; columns <= usual * 2 && columns <= highest; columns *= 4) {
    struct best best = {.count = 0, .most = OTHER_COLUMNS};
    if (columns >= 8)
      visit(problem, columns, best_see, &best);
    count = append(best.list, best.count, out, count, most);
  }
  return count;
}

int hopper_candidates(const struct kernel_problem *problem, bool all, struct hopper_config *out, int most) {
  struct best best = {.count = 0, .most = HOPPER_ALL};
  out[0] = hopper_configure(problem);
  if (!all)
    return shortlist(problem, out, most);
  for (int columns = 8; columns <= hopper_columns_most(problem->scale); columns *= 2)
    visit(problem, columns, best_see, &best);
  return append(best.list, best.count, out, 1, most);
}

static int add_near(const struct hopper_config *near, const struct hopper_config *base, enum gemm_scale scale,
                    struct hopper_config *out, int count) {
  if (same(near, base) || !hopper_config_valid(near, scale))
    return count;
  out[count] = *near;
  return count + 1;
}

int hopper_near(const struct hopper_config *base, enum gemm_scale scale, struct hopper_config out[HOPPER_NEAR]) {
  static const int aheads[] = {2, 3, 4, 6}, more_rows[] = {-16, -8, 8, 16};
  struct hopper_config near = *base;
  int count = 0;
  for (int i = 0; i < 4; i++) {
    near.ahead = aheads[i];
    count = add_near(&near, base, scale, out, count);
  }
  near = *base;
  near.split_k = split_after(base->split_k);
  count = add_near(&near, base, scale, out, count);
  near.split_k = base->split_k > 4 ? base->split_k - 2 : base->split_k - 1;
  count = add_near(&near, base, scale, out, count);
  near = *base;
  for (int i = 0; i < 4; i++) {
    near.rows = base->rows + more_rows[i];
    near.groups = (near.rows + GROUP_ROWS - 1) / GROUP_ROWS;
    near.groups = near.groups < base->groups ? base->groups : near.groups;
    count = add_near(&near, base, scale, out, count);
  }
  /* 1 to 3 % faster at 16 rows in some: the model holds it to be slower. */
  near = *base;
  near.columns = 2 * base->columns;
  count = add_near(&near, base, scale, out, count);
  /* Two steps at once that alone lose: more blocks with less under way in each, 2.5 % faster for 4096x4096 at 16 rows,
   * and two blocks in place of one of two warpgroups. */
  near = *base;
  near.split_k = split_after(base->split_k);
  near.ahead = base->ahead > 4 ? 4 : base->ahead - 1;
  count = add_near(&near, base, scale, out, count);
  near = *base;
  near.groups = base->groups / 2;
  near.rows = base->rows / 2;
  return add_near(&near, base, scale, out, count);
}
