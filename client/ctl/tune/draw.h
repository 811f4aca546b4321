/* A map of what a search has tried, drawn: as text for a terminal, or as SVG for an HTML page. */
#pragma once

#include "map.h"

void tune_draw_text(const struct tune_trials *trials, const struct tune_map *map, FILE *out);
/* Two figures: map and curves; nothing where nothing was timed. */
void tune_draw_svg(const struct tune_trials *trials, const struct tune_map *map, FILE *out);
