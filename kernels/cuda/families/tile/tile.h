/* Kernels of family "tile", compiled at run time: made, kept in files, loaded and launched. */
#pragma once

#include "../../runtime/driver.h"
#include "config.h"

struct tile_code; /* loaded for the device; lasts as long as its table */

struct tile_table {
  const struct driver *driver;
  struct kernel_device device;
  const char *nvrtc;      /* library to compile with; NULL: the usual names. Not owned */
  char folder[512];       /* that code is kept in; "": none, and so nothing can be compiled */
  struct tile_code *list; /* owned */
  int compiler;           /* whether the library is there: 0: not known yet, 1: it is, -1: it is not */
};

/* `state_dir`: NULL or "": nothing is compiled. */
void tile_table_open(struct tile_table *table, const struct driver *driver, const struct kernel_device *device,
                     const char *nvrtc, const char *state_dir);
/* The context is current, or lost. */
void tile_table_close(struct tile_table *table);

/* Whether code can be compiled here; looks for the library the first time, which takes milliseconds. */
bool tile_compiles(struct tile_table *table);
/* Whether code for the variant is there or can be made. UNSUPPORTED with the reason. */
MUST_CHECK enum status tile_can_build(const struct tile_table *table, const struct variant *variant,
                                      const struct tile_plan *plan, struct error *error);
/* Compiles and keeps it, unless that has been done: seconds, no device. */
MUST_CHECK enum status tile_build(const struct tile_table *table, const struct variant *variant,
                                  const struct tile_plan *plan, struct error *error);
/* Loads what is kept: *out is NULL where nothing is. UNSUPPORTED where the device refuses it, or where it would keep
 * sums in memory because registers do not suffice. */
MUST_CHECK enum status tile_load(struct tile_table *table, const struct variant *variant, const struct tile_plan *plan,
                                 const struct tile_code **out, struct error *error);

/* Queues the product: slices' turns are cleared, and slices joined, where there are any. */
MUST_CHECK enum status tile_launch(const struct tile_table *table, const struct tile_code *code,
                                   const struct tile_plan *plan, const struct tile_params *params, CUstream stream,
                                   struct error *error);
