#include "maker.h"

#include "../../context.h"
#include "../../workers/fleet.h"
#include "answer.h"
#include "same.h"

#include <stdio.h>
#include <string.h>

bool maker_wants_numbers(const struct load *load) {
  return gemm_is_int2((enum gemm_format)load->request.format) && load->request.experts == 0 &&
         load->request.matrix_type == 0;
}

bool maker_take_numbers(struct load *load) {
  struct catalog_stamp *stamp = &load->stamps[CATALOG_NUMBERS];
  load->left = load->done;
  load->numbers = load->canonical;
  load->canonical = -1;
  load->request.raw = false; /* not once more */
  stamp->known = true;
  memcpy(stamp->bytes, load->done.hash, sizeof stamp->bytes);
  return !same_find_stamp(load->supervisor, load, CATALOG_NUMBERS);
}

bool maker_on_device(const struct load *load) {
  return strcmp(load->supervisor->fleet->config.backend, "cpu") != 0;
}

struct message_weight_load maker_request(const struct load *load) {
  const struct message_load_done *left = &load->left;
  struct message_weight_load request = {.format = left->format,
                                        .scale = left->scale,
                                        .method = left->ternary ? GEMM_METHOD_TERNARY : GEMM_METHOD_LEAST_SQUARES,
                                        .progress = load->request.progress,
                                        .old_hash = load->request.old_hash,
                                        .matrix_type = left->numbers,
                                        .matrix_n = left->n,
                                        .matrix_k = left->k};
  snprintf(request.name, sizeof request.name, "%s", load->request.tensor);
  return request;
}

/* ---- by a worker */

static void on_made(void *user, struct worker_answer *answer) {
  struct load *load = user;
  load->answered = true;
  if (answer->status == STATUS_OK) {
    load->done = answer->body->load_done;
    load->canonical = answer->fd;
    answer->fd = -1; /* the load's */
    (void)(answer_check(load, &load->error) == STATUS_OK);
  } else {
    load->error = answer->error;
  }
  load->ended(load);
}

/* What the worker says of numbers is about a tensor. */
static void on_converted(void *user, struct worker_answer *answer) {
  struct load *load = user;
  if (answer->status == STATUS_BAD_FILE) {
    struct error cause = answer->error;
    (void)error_set(&answer->error, cause.status, "tensor '%.80s': %.300s", load->request.tensor, cause.text);
  }
  on_made(user, answer);
}

static struct worker *converter(const struct load *load) {
  struct fleet *fleet = load->supervisor->fleet;
  uint32_t device = load->request.device > 0 ? (uint32_t)load->request.device : 0;
  for (uint32_t i = 0; i < fleet->count; i++) {
    struct worker *worker = &fleet->workers[(device + i) % fleet->count];
    if (worker_usable(worker))
      return worker;
  }
  return NULL;
}

bool maker_convert(struct load *load) {
  const struct message_load_done *left = &load->left;
  const struct message_weight_make make = {.type = left->numbers,
                                           .n = left->n,
                                           .k = left->k,
                                           .format = left->format,
                                           .scale = left->scale,
                                           .ternary = left->ternary,
                                           .old_hash = load->request.old_hash};
  struct worker *worker = converter(load);
  if (worker == NULL)
    (void)error_set(&load->error, STATUS_DEVICE_LOST, "no device has a worker at the moment");
  return worker != NULL && worker_ask(worker, COMMAND_weight_convert, &make, &load->numbers, 1, on_converted, load,
                                      &load->error) == STATUS_OK;
}

enum status maker_make(struct load *load, struct error *error) {
  load->request.old_hash = load->make.old_hash = catalog_has_old_hash(&load->supervisor->catalog);
  return worker_ask(load->maker, COMMAND_weight_make, &load->make, NULL, 0, on_made, load, error);
}
