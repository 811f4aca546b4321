#include "mailbox.h"

#include <string.h>

void mailbox_open(struct mailbox *box) {
  memset(box, 0, sizeof *box);
  pthread_mutex_init(&box->lock, NULL);
}

void mailbox_close(struct mailbox *box) {
  pthread_mutex_destroy(&box->lock);
}

void mailbox_put(struct mailbox *box, struct engine_message *message) {
  message->next = NULL;
  pthread_mutex_lock(&box->lock);
  if (box->last != NULL)
    box->last->next = message;
  else
    box->first = message;
  box->last = message;
  atomic_store_explicit(&box->filled, true, memory_order_release);
  pthread_mutex_unlock(&box->lock);
}

bool mailbox_filled(const struct mailbox *box) {
  return atomic_load_explicit(&box->filled, memory_order_acquire);
}

struct engine_message *mailbox_take(struct mailbox *box) {
  if (!mailbox_filled(box))
    return NULL;
  pthread_mutex_lock(&box->lock);
  struct engine_message *first = box->first;
  box->first = box->last = NULL;
  atomic_store_explicit(&box->filled, false, memory_order_relaxed);
  pthread_mutex_unlock(&box->lock);
  return first;
}
