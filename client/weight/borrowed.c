#include "borrowed.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- slabs */

struct slab *slab_find(const struct gemmd_session *session, uint64_t epoch, uint32_t id) {
  struct slab *slab = session->slabs;
  while (slab != NULL && (slab->id != id || slab->epoch != epoch))
    slab = slab->next;
  return slab;
}

enum status slab_keep(struct gemmd_session *session, uint64_t epoch, uint32_t id, int fd) {
  struct slab *slab = slab_find(session, epoch, id);
  if (slab != NULL) { /* asked for once more by mistake */
    close(fd);
    return STATUS_OK;
  }
  slab = malloc(sizeof *slab);
  if (slab == NULL) {
    close(fd);
    return error_set(&session->error, STATUS_NOMEM, "no memory for a borrowed weight");
  }
  *slab = (struct slab){.next = session->slabs, .epoch = epoch, .id = id, .fd = fd};
  session->slabs = slab;
  return STATUS_OK;
}

void slabs_close_unused(struct gemmd_session *session) {
  for (struct slab **link = &session->slabs; *link != NULL;) {
    struct slab *slab = *link;
    if (slab->uses > 0) {
      link = &slab->next;
      continue;
    }
    *link = slab->next;
    close(slab->fd);
    free(slab);
  }
}

/* ---- weights */

void borrowed_forget(struct gemmd_borrowed *borrowed) {
  struct gemmd_session *session = borrowed->session;
  for (unsigned i = 0; i < borrowed->part_count; i++)
    slab_find(session, borrowed->epoch, borrowed->parts[i].slab)->uses--;
  LIST_REMOVE(borrowed, link);
  free(borrowed);
  slabs_close_unused(session);
}

void borrowed_withdraw(struct gemmd_session *session, const struct message_weight_withdrawn *event) {
  struct gemmd_borrowed *borrowed;
  LIST_FOREACH (borrowed, &session->borrowed, link)
    if (borrowed->borrow == event->borrow)
      borrowed->state = GEMMD_BORROWED_WITHDRAWN;
}

const gemmd_weight_info *gemmd_borrowed_info(const gemmd_borrowed *borrowed) {
  return &borrowed->info;
}

const gemmd_borrowed_part *gemmd_borrowed_parts(const gemmd_borrowed *borrowed, unsigned *count) {
  *count = borrowed->part_count;
  return borrowed->parts;
}

enum gemmd_borrowed_state gemmd_borrowed_look(const gemmd_borrowed *borrowed) {
  return borrowed->state;
}

uint32_t gemmd_borrowed_number(const gemmd_borrowed *borrowed) {
  return borrowed->borrow;
}
