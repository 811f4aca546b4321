/* What a load reads and makes, by what can be told without reading: which files, of what size, when they were changed,
 * and the request. */
#pragma once

#include "load.h"

/* out->known is false where a file does not say, or was changed so short a time ago that it may change once more
 * without its times telling. Different users have different stamps: a file system of one's own can tell anything. */
void stamp_make(const struct message_weight_load *request, const struct load_files *files, uint32_t user,
                struct catalog_stamp *out);
/* After the files have been read: forgets a stamp that is not theirs any more. */
void stamp_check(const struct message_weight_load *request, const struct load_files *files, uint32_t user,
                 struct catalog_stamp *stamp);
