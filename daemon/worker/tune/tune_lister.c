#include "tune_lister.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

struct question {
  struct variant_problem problem;
  bool all;
  int most;
  uint64_t number; /* 0: none */
};

struct tune_lister {
  const struct backend_ops *ops;
  struct backend *backend; /* not owned */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t asked;
  struct question question; /* the latest */
  uint64_t answered;        /* its number, once `list` is of it; the thread writes to `list` only before */
  bool stopping;
  int count;
  struct variant list[LISTER_MOST];
};

/* The next question without an answer; false at the end. */
static bool wait_for_question(struct tune_lister *lister, struct question *out) {
  pthread_mutex_lock(&lister->lock);
  while (!lister->stopping && lister->question.number == lister->answered)
    pthread_cond_wait(&lister->asked, &lister->lock);
  *out = lister->question;
  bool more = !lister->stopping;
  pthread_mutex_unlock(&lister->lock);
  return more;
}

static void *run(void *argument) {
  struct tune_lister *lister = argument;
  struct question question;
  prctl(PR_SET_NAME, "lister");
  while (wait_for_question(lister, &question)) {
    int count = lister->ops->library_variants(lister->backend, &question.problem, question.all, lister->list,
                                              question.most < LISTER_MOST ? question.most : LISTER_MOST);
    pthread_mutex_lock(&lister->lock);
    if (question.number == lister->question.number) {
      lister->answered = question.number;
      lister->count = count;
    }
    pthread_mutex_unlock(&lister->lock);
  }
  return NULL;
}

/* Signals are other threads'. */
static int start_thread(struct tune_lister *lister) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failure = pthread_create(&lister->thread, NULL, run, lister);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failure;
}

enum status tune_lister_open(const struct backend_ops *ops, struct backend *backend, struct tune_lister **out,
                             struct error *error) {
  struct tune_lister *lister = calloc(1, sizeof *lister);
  if (lister == NULL)
    return error_set(error, STATUS_NOMEM, "no memory for the tuner's list of kernels");
  lister->ops = ops;
  lister->backend = backend;
  pthread_mutex_init(&lister->lock, NULL);
  pthread_cond_init(&lister->asked, NULL);
  int failure = start_thread(lister);
  if (failure != 0) {
    pthread_cond_destroy(&lister->asked);
    pthread_mutex_destroy(&lister->lock);
    free(lister);
    return error_set(error, STATUS_SYSTEM, "pthread_create: %s", strerror(failure));
  }
  *out = lister;
  return STATUS_OK;
}

void tune_lister_close(struct tune_lister *lister) {
  if (lister == NULL)
    return;
  pthread_mutex_lock(&lister->lock);
  lister->stopping = true;
  pthread_cond_signal(&lister->asked);
  pthread_mutex_unlock(&lister->lock);
  pthread_join(lister->thread, NULL);
  pthread_cond_destroy(&lister->asked);
  pthread_mutex_destroy(&lister->lock);
  free(lister);
}

void tune_lister_ask(struct tune_lister *lister, const struct variant_problem *problem, bool all, int most) {
  pthread_mutex_lock(&lister->lock);
  lister->question =
      (struct question){.problem = *problem, .all = all, .most = most, .number = lister->question.number + 1};
  pthread_cond_signal(&lister->asked);
  pthread_mutex_unlock(&lister->lock);
}

int tune_lister_answer(struct tune_lister *lister, const struct variant **list) {
  pthread_mutex_lock(&lister->lock);
  int count = lister->answered == lister->question.number ? lister->count : -1;
  pthread_mutex_unlock(&lister->lock);
  *list = lister->list;
  return count;
}
