/* What clients ask of the tuner. */
#pragma once

#include "tuner_state.h"

/* Carries a request out; the message goes back by notify, that of TUNE_ASK when the shape has been tuned. */
void tuner_request(struct tuner *tuner, struct engine_message *message);
void tuner_unpin(struct tuner *tuner, struct engine_weight *weight);
/* Those that wait for a shape of the weight go back with CANCELLED; NULL: all. */
void tuner_cancel_asks(struct tuner *tuner, const struct engine_weight *weight);
