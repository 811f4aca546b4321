/* How the plain kernels cut K: all of it, in slices that the workspace has room for, none of them long. */
#include "kernels/cuda/families/plain/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define WORKSPACE ((uint64_t)32 << 20)

enum { SMS = 132, LONG = 32768 + 512 };

static void covers_k(void **state) {
  static const int64_t sizes[] = {1, 3, 64, 127, 1000, 65536}, ks[] = {1, 127, 2048, 4095, 8192, 131071, 1 << 24};
  (void)state;
  for (size_t i = 0; i < COUNT(sizes); i++)
    for (size_t j = 0; j < COUNT(sizes); j++)
      for (size_t l = 0; l < COUNT(ks); l++) {
        int64_t m = sizes[i], n = sizes[j], k = ks[l], blocks = (m + 63) / 64 * ((n + 63) / 64);
        struct plain_cut cut = plain_cut(m, n, k, blocks, SMS, WORKSPACE);
        assert_true(cut.slices >= 1 && cut.slices <= 65535);
        assert_true(cut.slices * cut.slice_k >= k && (cut.slices - 1) * cut.slice_k < k);
        if (cut.slices == 1)
          continue;
        assert_int_equal(cut.slice_k % PLAIN_SLICE_ALIGN, 0);
        assert_true((uint64_t)(cut.slices * m * n) * 4 <= WORKSPACE);
      }
}

static void long_ones_are_brief(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 256; n *= 2)
    assert_in_range(plain_cut(64, n, 1 << 24, (n + 63) / 64, SMS, WORKSPACE).slice_k, 1, LONG);
  assert_in_range(plain_cut(1, 1, 1 << 24, 1, SMS, WORKSPACE).slice_k, 1, LONG);
}

/* One more launch costs more than it gains where K is short or the device is full. */
static void others_stay_whole(void **state) {
  (void)state;
  assert_int_equal(plain_cut(1, 64, 2048, 1, SMS, WORKSPACE).slices, 1);
  assert_int_equal(plain_cut(4096, 4096, 8192, 4096, SMS, WORKSPACE).slices, 1);
  assert_int_equal(plain_cut(1, 64, 8192, 1, SMS, 0).slices, 1);
  assert_int_equal(plain_cut(1, 64, 8192, 1, SMS, WORKSPACE).slices, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(covers_k),
      cmocka_unit_test(long_ones_are_brief),
      cmocka_unit_test(others_stay_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
