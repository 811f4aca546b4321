/* Which kernel serves a product where nobody names one: the least predicted time over the table of families. */
#pragma once

#include "table.h"

/* What families offer for a problem, the fastest first, in the table's order where they foretell the same. Pure. */
enum { OFFERS_MOST = 16 };
struct offer {
  const struct kernel_family *family;
  struct variant variant; /* to be completed by the family */
  double us;
};
int select_offers(const struct kernel_problem *problem, struct offer out[OFFERS_MOST]);

/* Answers that are kept. One thread uses it. */
struct selector;

struct selector *selector_open(void); /* NULL: no memory */
void selector_close(struct selector *selector);

/* The choice for all M of the problem's bucket, or for `exact` M alone where an algorithm of the bucket does not take
 * it. The first answer for a key is kept. The device is current. */
struct variant selector_find(struct selector *selector, struct backend *backend, const struct kernel_problem *problem,
                             bool exact);
