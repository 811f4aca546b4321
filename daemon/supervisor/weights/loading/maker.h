/* Weights that are made of numbers: of those in memory on a device by its worker; of those that a loader has left, as
 * INT2 takes a search for scales, by a worker whose device does it, else by a second loader. */
#pragma once

#include "load.h"

/* Whether a loader had better leave the numbers of a load as they are. */
bool maker_wants_numbers(const struct load *load);
/* The loader has left them: load->canonical becomes load->numbers. False where nothing is to be made of them: what was
 * made of equal ones is there, load->found. */
bool maker_take_numbers(struct load *load);
/* Whether a worker makes weights of numbers, or a second loader does, asked as maker_request says, with load->numbers
 * for a file. */
bool maker_on_device(const struct load *load);
struct message_weight_load maker_request(const struct load *load);
/* Asks a worker; load->ended is called later. False: load->error says why not. */
bool maker_convert(struct load *load);
/* The same of memory on the device of load->maker. */
MUST_CHECK enum status maker_make(struct load *load, struct error *error);
