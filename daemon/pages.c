#include "pages.h"

#include "../proto/gemm.h"
#include "memfd.h"

enum { BAND_BYTES = 16 << 20 };

struct range {
  uint8_t *at;
  uint64_t bytes;
};

static enum status take_band(void *context, uint64_t band, void *scratch, struct error *error) {
  const struct range *range = context;
  uint64_t begin = band * BAND_BYTES, left = range->bytes - begin;
  memfd_take_large_pages(range->at + begin, left < BAND_BYTES ? left : BAND_BYTES);
  return STATUS_OK;
}

enum status pages_take(uint8_t *at, uint64_t bytes, unsigned threads, struct watch *watch, struct error *error) {
  struct range range = {.at = at, .bytes = bytes};
  const struct bands bands = {.count = gemm_ceil_div(bytes, BAND_BYTES),
                              .scratch_bytes = 1,
                              .threads = threads,
                              .work = take_band,
                              .context = &range};
  return bands_run(&bands, watch, error);
}
