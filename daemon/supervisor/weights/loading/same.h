/* Whether what a load wants is there already. */
#pragma once

#include "load.h"

/* What the load asks for its name, which stays the load's. */
struct catalog_wish same_wish(const struct load *load);
/* Equal content that lies as the load wants it, on devices that are in order; NULL: none. */
struct catalog_weight *same_find(struct supervisor *supervisor, const struct load *load);
/* The same by a stamp of the load's, before it is made: load->found, which is held, and its hash. False: none. */
bool same_find_stamp(struct supervisor *supervisor, struct load *load, enum catalog_mark mark);
