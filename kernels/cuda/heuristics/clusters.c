#include "clusters.h"

double clusters_usable(int sms, int blocks) {
  /* Of 132, measured in an H200, whose groups have 16 or 18: 39 clusters of 3, 30 of 4, 22 of 5, 17 of 6, 15 of 7 and
   * 8. */
  static const int of_132[CLUSTERS_BLOCKS_MOST + 1] = {132, 132, 132, 117, 120, 110, 102, 105, 120};
  return sms * of_132[blocks] / 132.0;
}
