/* What is to become of a model, private. */
#pragma once

#include "../gemmclient.h"
#include "item.h"

/* What is under way together is made in gemmd's host memory first. With what copies it to a device that is less than a
 * GiB, but for a weight that has more by itself. */
enum { MODEL_BYTES_TOGETHER = 896 << 20 };
/* Whether the item may begin while so many bytes of the files are under way. */
bool model_may_begin(const struct model_item *item, uint64_t bytes_under_way);

/* What of the model is to become which weight. NOT_FOUND, EXISTS, INVALID, UNSUPPORTED. Items that cannot be read stay
 * among them only where the caller keeps going. Free it, whatever is returned. */
MUST_CHECK enum status model_plan_make(const struct model_files *files, const gemmd_model *wanted,
                                       struct model_plan *plan, struct error *error);
void model_plan_free(struct model_plan *plan);
