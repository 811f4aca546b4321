/* What is made of a load by others. */
#pragma once

#include "load.h"

/* The loader has handled a file that nobody vouches for; what it says is not taken on trust. INTERNAL or
 * BAD_DESCRIPTOR where load->done or load->canonical is not what was asked for. */
MUST_CHECK enum status answer_check(const struct load *load, struct error *error);
