#include "pauses.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { AFTERWARDS = 20 }; /* right products of each client, until a fault counts as over */

void pauses_note(struct pauses *pauses, int client, uint64_t waited_ns, int status, bool right) {
  if (waited_ns > atomic_load(&pauses->longest_ns[client]))
    atomic_store(&pauses->longest_ns[client], waited_ns);
  if (status == GEMMD_OK && right)
    atomic_fetch_add(&pauses->right[client], 1);
  else
    atomic_fetch_add(status != GEMMD_OK && gemmd_status_retryable(status) ? &pauses->refused : &pauses->wrong, 1);
}

/* Every client has had new products, none of the last of them begun before this. */
static void await_all(struct pauses *pauses) {
  uint64_t from[PAUSES_CLIENTS];
  for (int i = 0; i < pauses->clients; i++)
    from[i] = atomic_load(&pauses->right[i]);
  for (int i = 0; i < pauses->clients; i++)
    while (atomic_load(&pauses->right[i]) < from[i] + AFTERWARDS && atomic_load(&pauses->wrong) == 0)
      sched_yield();
}

static int by_size(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

void pauses_head(const struct pauses *pauses) {
  char title[64];
  snprintf(title, sizeof title, "fault, under %d clients", pauses->clients);
  printf("| %-52s | %5s | %4s | %7s | %9s | %8s |\n", title, "tries", "lost", "refused", "median ms", "worst ms");
  printf("|---|---|---|---|---|---|\n");
}

uint64_t pauses_try(struct pauses *pauses, const struct pauses_fault *fault) {
  static uint64_t waits[PAUSES_ROUNDS * PAUSES_CLIENTS];
  uint64_t wrong = atomic_load(&pauses->wrong), refused = atomic_load(&pauses->refused);
  size_t count = 0;
  for (int round = 0; round < fault->rounds; round++) {
    await_all(pauses);
    for (int i = 0; i < pauses->clients; i++)
      atomic_store(&pauses->longest_ns[i], 0);
    fault->inject();
    await_all(pauses);
    for (int i = 0; i < pauses->clients; i++)
      waits[count++] = atomic_load(&pauses->longest_ns[i]);
    if (fault->settle != NULL)
      fault->settle();
  }
  qsort(waits, count, sizeof *waits, by_size);
  printf("| %-52s | %5d | %4llu | %7llu | %9.1f | %8.1f |\n", fault->name, fault->rounds,
         (unsigned long long)(atomic_load(&pauses->wrong) - wrong),
         (unsigned long long)(atomic_load(&pauses->refused) - refused), (double)waits[count / 2] / 1e6,
         (double)waits[count - 1] / 1e6);
  fflush(stdout);
  return waits[count - 1];
}
