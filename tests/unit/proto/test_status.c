#include "proto/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void rows_have_name_and_text(void **state) {
  assert_string_equal(status_name(STATUS_OK), "OK");
  assert_string_equal(status_name(STATUS_INTERNAL), "INTERNAL");
  assert_string_equal(status_text(STATUS_BUSY), "busy");
  assert_string_equal(field_text(FIELD_X_SCALE_OFFSET), "x scale offset");
  for (uint32_t number = 0; number <= STATUS_INTERNAL; number++)
    assert_true(status_known(number));
}

static void unknown_numbers_are_harmless(void **state) {
  static const uint32_t numbers[] = {200, 255, 65536, UINT32_MAX};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    assert_false(status_known(numbers[i]));
    assert_false(status_retryable((enum status)numbers[i]));
    assert_string_equal(status_name((enum status)numbers[i]), "UNKNOWN");
    assert_string_equal(status_text((enum status)numbers[i]), "unknown status");
    assert_string_equal(field_text((enum field)numbers[i]), "");
  }
}

static void retryable_as_in_the_table(void **state) {
#define STATUS(number, name, retryable, text) assert_int_equal(status_retryable(STATUS_##name), retryable);
#include "proto/status.def"
  assert_true(status_retryable(STATUS_BUSY));
  assert_false(status_retryable(STATUS_INVALID));
}

static void sentences_from_numbers(void **state) {
  static const struct {
    enum field field;
    int64_t value, low, high;
    const char *text;
  } cases[] = {
      {FIELD_M, 0, 1, 16777216, "M must be 1..16777216, got 0"},
      {FIELD_K, 4095, 4096, 4096, "K must be 4096, got 4095"},
      {FIELD_PLAN_OFFSET, 7, 0, 0, "plan offset must be 0, got 7"},
      {FIELD_X_OFFSET, 4097, 16, 0, "x offset must be a multiple of 16, got 4097"},
      {FIELD_WEIGHT, 65537, 1, 0, "weight 65537: invalid argument"},
      {FIELD_BYTES, INT64_MAX, INT64_MIN, -1, "bytes must be -9223372036854775808..-1, got 9223372036854775807"},
      {FIELD_NONE, 3, 1, 2, "invalid argument"},
      {(enum field)999, 3, 1, 2, "invalid argument"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct error error;
    memset(&error, 0x5a, sizeof error);
    assert_int_equal(error_field(&error, STATUS_INVALID, cases[i].field, cases[i].value, cases[i].low, cases[i].high),
                     STATUS_INVALID);
    assert_string_equal(error.text, cases[i].text);
    assert_int_equal(error.status, STATUS_INVALID);
    assert_int_equal(error.field, cases[i].field);
    assert_true(error.value == cases[i].value && error.low == cases[i].low && error.high == cases[i].high);
  }
}

static void sentences_are_formatted(void **state) {
  struct error error;
  memset(&error, 0x5a, sizeof error);
  assert_int_equal(error_set(&error, STATUS_BAD_FILE, "tensor %s at %d", "a", 12), STATUS_BAD_FILE);
  assert_string_equal(error.text, "tensor a at 12");
  assert_int_equal(error.field, FIELD_NONE);
  assert_true(error.low > error.high);
  assert_int_equal(error_set(&error, STATUS_SYSTEM, "open: %s", error.text), STATUS_SYSTEM);
  assert_string_equal(error.text, "open: tensor a at 12");
}

static void never_empty(void **state) {
  struct error error;
  assert_int_equal(error_set(&error, STATUS_NOMEM, "%s", ""), STATUS_NOMEM);
  assert_string_equal(error.text, "out of memory");
}

/* 254 bytes, then a character of two, three or four bytes that only begins inside the buffer. */
static void a_cut_ends_between_characters(void **state) {
  static const char *const characters[] = {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
  for (size_t i = 0; i < 3; i++)
    for (size_t fill = ERROR_TEXT_BYTES - 5; fill < ERROR_TEXT_BYTES; fill++) {
      char long_text[ERROR_TEXT_BYTES + 16];
      memset(long_text, 'x', fill);
      size_t width = strlen(characters[i]);
      memcpy(long_text + fill, characters[i], width);
      memcpy(long_text + fill + width, "0123456789", 11);
      struct error error;
      assert_int_equal(error_set(&error, STATUS_SYSTEM, "%s", long_text), STATUS_SYSTEM);
      size_t length = strlen(error.text);
      size_t expected = fill + width <= ERROR_TEXT_BYTES - 1 ? ERROR_TEXT_BYTES - 1 : fill;
      assert_int_equal(length, expected);
      assert_memory_equal(error.text, long_text, length);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_have_name_and_text),       cmocka_unit_test(unknown_numbers_are_harmless),
      cmocka_unit_test(retryable_as_in_the_table),     cmocka_unit_test(sentences_from_numbers),
      cmocka_unit_test(sentences_are_formatted),       cmocka_unit_test(never_empty),
      cmocka_unit_test(a_cut_ends_between_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
