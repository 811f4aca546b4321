/* A weight in a slab is the same whoever stores it, and what lies beside it stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/cpu/weight/place.h"
#include "kernels/cpu/weight/weight.h"

enum { N = 2500, K = 8000, SLAB = 96 << 20, BEGIN = 3 * GEMM_SECTION, BESIDE = 0x5a };

static void *canonical_of(const struct gemm_weight *weight, uint64_t *bytes) {
  struct gemm_layout layout;
  struct error error;
  assert_int_equal(gemm_layout_compute(weight, &layout, &error), STATUS_OK);
  uint8_t *canonical = malloc(layout.total_bytes);
  uint64_t random = 1;
  assert_non_null(canonical);
  for (uint64_t i = 0; i < layout.total_bytes; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    canonical[i] = (uint8_t)(random >> 56);
  }
  *bytes = layout.total_bytes;
  return canonical;
}

/* The slab's bytes after a store by so many threads; the memory before and behind the weight had been written. */
static uint8_t *stored(const struct gemm_weight *weight, const void *canonical, bool large_pages, int threads) {
  struct backend_slab *slab = NULL;
  struct cpu_layout layout;
  struct error error;
  uint8_t *beside = malloc(SLAB), *all = malloc(SLAB);
  int fd;
  assert_true(beside != NULL && all != NULL);
  memset(beside, BESIDE, SLAB);
  assert_int_equal(cpu_layout_compute(weight, &layout, &error), STATUS_OK);
  uint64_t end = BEGIN + layout.total_bytes;
  assert_true(end < SLAB);
  assert_int_equal(cpu_slab_create(SLAB, &fd, &slab, &error), STATUS_OK);
  assert_int_equal(cpu_slab_write(slab, 0, beside, BEGIN, &error), STATUS_OK);
  assert_int_equal(cpu_slab_write(slab, end, beside, SLAB - end, &error), STATUS_OK);
  assert_int_equal(cpu_place_store(weight, canonical, slab, BEGIN, large_pages, threads, &error), STATUS_OK);
  memcpy(all, cpu_slab_read(slab, 0, SLAB, &error), SLAB);
  assert_memory_equal(all, beside, BEGIN);
  assert_memory_equal(all + end, beside, SLAB - end);
  cpu_slab_close(slab);
  close(fd);
  free(beside);
  return all;
}

static void test_threads_store_the_same(void **state) {
  static const enum gemm_format formats[] = {GEMM_FORMAT_BF16, GEMM_FORMAT_INT8, GEMM_FORMAT_INT2};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    struct gemm_weight weight = {
        .n = N, .k = K, .format = formats[i], .scale = gemm_format_facts(formats[i])->scale_default};
    uint64_t bytes;
    void *canonical = canonical_of(&weight, &bytes);
    uint8_t *one = stored(&weight, canonical, false, 1);
    for (int threads = 2; threads <= 64; threads *= 4) {
      uint8_t *many = stored(&weight, canonical, threads > 2, threads);
      assert_memory_equal(many, one, SLAB);
      free(many);
    }
    free(one);
    free(canonical);
  }
}

static void pack_all(const struct gemm_weight *weight, const struct cpu_layout *layout, const void *canonical,
                     uint8_t *panels, int before) {
  memset(panels, before, layout->total_bytes);
  for (int64_t i = 0; i < layout->panels; i++) {
    cpu_layout_pack(weight, layout, canonical, i, panels + (uint64_t)(i * layout->width) * layout->column_bytes);
  }
  cpu_layout_scales(weight, layout, canonical, panels + layout->scales_offset);
}

/* Panels are packed into memory that has others' bytes: each of theirs is written, and says what was canonical. */
static void check_panels(const struct gemm_weight *weight) {
  struct backend_weight one = {.shape = *weight}, two = one;
  struct error error;
  uint64_t bytes;
  uint8_t *canonical = canonical_of(weight, &bytes), *back = calloc(1, bytes);
  assert_int_equal(cpu_layout_compute(weight, &one.layout, &error), STATUS_OK);
  two.layout = one.layout;
  const struct gemm_layout *layout = &one.layout.canonical;
  uint64_t row = (uint64_t)weight->k * gemm_format_facts(weight->format)->bits / 8;
  for (uint64_t i = 0; i < bytes; i++) {
    canonical[i] &= 0xbb; /* no NaN */
  }
  uint8_t *first = malloc(one.layout.total_bytes), *second = malloc(one.layout.total_bytes);
  assert_true(back != NULL && first != NULL && second != NULL);
  one.panels = first;
  two.panels = second;
  pack_all(weight, &one.layout, canonical, first, 0x5a);
  pack_all(weight, &two.layout, canonical, second, 0xa5);
  assert_memory_equal(first, second, gemm_round_up((uint64_t)weight->n, 16) * one.layout.column_bytes);
  cpu_weight_canonical(&one, back);
  for (int64_t n = 0; n < weight->n; n++) {
    assert_memory_equal(back + (uint64_t)n * layout->row_bytes, canonical + (uint64_t)n * layout->row_bytes, row);
  }
  free(canonical);
  free(back);
  free(first);
  free(second);
}

static void test_panels_are_whole(void **state) {
  static const int64_t shapes[][2] = {{64, 2048}, {33, 1500}, {3, 4}, {70, 136}, {131, 1024}, {16, 20}};
  for (int format = GEMM_FORMAT_INT8; format < GEMM_FORMATS; format++) {
    const struct gemm_format_facts *facts = gemm_format_facts((enum gemm_format)format);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
      check_panels(&(struct gemm_weight){
          .n = shapes[i][0], .k = shapes[i][1], .format = (enum gemm_format)format, .scale = facts->scale_default});
    }
  }
}

/* What cannot be written is said by whichever thread meets it. */
static void test_a_place_outside_of_the_slab(void **state) {
  struct gemm_weight weight = {.n = N, .k = K, .format = GEMM_FORMAT_BF16};
  struct backend_slab *slab = NULL;
  struct error error;
  uint64_t bytes;
  int fd;
  void *canonical = canonical_of(&weight, &bytes);
  assert_int_equal(cpu_slab_create(bytes, &fd, &slab, &error), STATUS_OK);
  assert_int_equal(cpu_place_store(&weight, canonical, slab, GEMM_SECTION, true, 4, &error), STATUS_INVALID);
  cpu_slab_close(slab);
  close(fd);
  free(canonical);
}

/* Whichever thread's write is refused: the store ends with its sentence, and a later one succeeds. */
static void test_writes_that_fail(void **state) {
  struct gemm_weight weight = {.n = N, .k = K, .format = GEMM_FORMAT_BF16};
  struct rlimit before, limit;
  struct error error;
  uint64_t bytes;
  void *canonical = canonical_of(&weight, &bytes);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  for (int threads = 1; threads <= 4; threads++) {
    struct backend_slab *slab = NULL;
    int fd;
    assert_int_equal(cpu_slab_create(SLAB, &fd, &slab, &error), STATUS_OK);
    limit = (struct rlimit){.rlim_cur = bytes / 2, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    enum status status = cpu_place_store(&weight, canonical, slab, 0, false, threads, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, STATUS_SYSTEM);
    assert_non_null(strstr(error.text, "cannot be stored"));
    assert_int_equal(cpu_place_store(&weight, canonical, slab, 0, false, threads, &error), STATUS_OK);
    cpu_slab_close(slab);
    close(fd);
  }
  signal(SIGXFSZ, handler);
  free(canonical);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads_store_the_same),
      cmocka_unit_test(test_panels_are_whole),
      cmocka_unit_test(test_a_place_outside_of_the_slab),
      cmocka_unit_test(test_writes_that_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
