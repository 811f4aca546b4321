#include "ranking.h"

#include <stdint.h>
#include <string.h>

int ranking_insert(void *items, double *costs, size_t item_bytes, int count, int most, const void *item, double cost) {
  int place = count;
  while (place > 0 && costs[place - 1] > cost)
    place--;
  if (place >= most)
    return count;
  uint8_t *at = (uint8_t *)items + (size_t)place * item_bytes;
  int behind = (count < most ? count : most - 1) - place;
  memmove(at + item_bytes, at, (size_t)behind * item_bytes);
  memmove(costs + place + 1, costs + place, (size_t)behind * sizeof *costs);
  memcpy(at, item, item_bytes);
  costs[place] = cost;
  return count < most ? count + 1 : most;
}
