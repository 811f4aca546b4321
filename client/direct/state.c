#include "state.h"

void *direct_enter(struct gemmd_direct *direct) {
  pthread_mutex_lock(&direct->lock);
  return direct->ops->caller_save != NULL ? direct->ops->caller_save() : NULL;
}

void direct_leave(struct gemmd_direct *direct, void *saved) {
  if (direct->ops->caller_restore != NULL)
    direct->ops->caller_restore(saved);
  pthread_mutex_unlock(&direct->lock);
}
