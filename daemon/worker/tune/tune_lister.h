/* What kernels a library has for a shape. It takes milliseconds to say so: it is asked on a thread of its own, and no
 * request waits for it. */
#pragma once

#include "../../../kernels/backend.h"

enum { LISTER_MOST = 2048 };

struct tune_lister;

/* For a backend that has library_variants. NOMEM, SYSTEM. */
MUST_CHECK enum status tune_lister_open(const struct backend_ops *ops, struct backend *backend,
                                        struct tune_lister **out, struct error *error);
/* Waits for the list that is being made. NULL is fine. */
void tune_lister_close(struct tune_lister *lister);

/* Asks for the best `most` guesses, or with `all` for the whole product of parameters. What was asked for before is
 * forgotten. */
void tune_lister_ask(struct tune_lister *lister, const struct variant_problem *problem, bool all, int most);
/* How many there are; -1: not known yet. *list is valid until the next question. */
int tune_lister_answer(struct tune_lister *lister, const struct variant **list);
