/* Whether y is right: what the last products of a load have left, against the same products asked for alone. */
#pragma once

#include "client/gemmclient.h"

#include <stddef.h>

/* ||y - alone|| / ||alone|| of the row that is worst, of dense rows; infinite where an element is not finite or was
 * never written. */
double check_difference(const void *y, const void *alone, enum gemmd_type type, size_t rows, size_t columns);

/* Two kernels round differently, and in a plan what they round may be quantized to the next code. */
#define CHECK_DIFFERENCE_MOST 0.05
