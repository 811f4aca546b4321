#include "turn.h"

int64_t turn_columns(const struct backend_turns *turns) {
  int64_t left = turns->columns - turns->column;
  return left < turns->panel ? left : turns->panel;
}

bool turn_ended(struct backend_turns *turns, enum status status, uint64_t ns) {
  turns->took_ns += ns;
  turns->row = turns->next_row;
  if (turns->row == turns->rows) {
    turns->row = 0;
    turns->column += turn_columns(turns);
  }
  turns->taken = status == STATUS_OK && turns->column < turns->columns;
  return turns->taken;
}
