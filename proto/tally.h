/* Histograms whose bounds are powers of two: counted in one place, sent, added up and written out in others. */
#pragma once

#include <stdint.h>

enum { TALLY_BUCKETS = 24 };

/* The bucket of a value: bucket i holds what is at most unit << i and in no bucket before; the last one holds all the
 * rest. `unit` > 0. */
uint32_t tally_bucket(uint64_t value, uint64_t unit);

/* The units: 2 us, so that the bounds are 2 us to 8.4 s; and one row, to 4194304. */
#define TALLY_NS 2000u
#define TALLY_ROWS 1u
