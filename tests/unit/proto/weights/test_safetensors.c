/* The header of a safetensors file, honest and hostile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/weights/safetensors.h"

/* Parses `json` as the header of a file with `data` bytes behind it. The header goes through a heap copy of exactly its
 * size, so that a read behind its end shows. */
static enum status parse_bytes(const char *json, size_t length, uint64_t data, struct safetensors *out,
                               struct error *error) {
  char *copy = malloc(length ? length : 1);
  assert_non_null(copy);
  memcpy(copy, json, length);
  enum status status = safetensors_parse(copy, length, SAFETENSORS_LENGTH_BYTES + length + data, out, error);
  free(copy);
  return status;
}

static enum status parse(const char *json, uint64_t data, struct safetensors *out, struct error *error) {
  return parse_bytes(json, strlen(json), data, out, error);
}

static void refuse(const char *json, uint64_t data, const char *reason) {
  struct safetensors file;
  struct error error = {0};
  assert_int_equal(parse(json, data, &file, &error), STATUS_BAD_FILE);
  assert_int_equal(error.status, STATUS_BAD_FILE);
  if (!strstr(error.text, reason))
    fail_msg("'%s' does not say '%s'", error.text, reason);
  assert_null(file.tensors);
}

static void test_good_header(void **state) {
  const char *json = "{\"__metadata__\":{\"format\":\"pt\"},"
                     "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
                     "\"a.weight\":{\"dtype\":\"I8\",\"shape\":[8],\"data_offsets\":[0,8]},"
                     "\"scalar\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[32,34]},"
                     "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[8,8]}}   ";
  struct safetensors file;
  struct error error;
  assert_int_equal(parse(json, 34, &file, &error), STATUS_OK);
  assert_int_equal(file.count, 4);
  uint64_t data = 8 + strlen(json);
  const struct safetensors_tensor *b = safetensors_find(&file, "b");
  assert_non_null(b);
  assert_int_equal(b->dtype, DTYPE_F32);
  assert_int_equal(b->rank, 2);
  assert_int_equal(b->shape[0], 2);
  assert_int_equal(b->shape[1], 3);
  assert_int_equal(b->elements, 6);
  assert_int_equal(b->begin, data + 8);
  assert_int_equal(b->end, data + 32);
  const struct safetensors_tensor *scalar = safetensors_find(&file, "scalar");
  assert_int_equal(scalar->rank, 0);
  assert_int_equal(scalar->elements, 1);
  assert_int_equal(safetensors_find(&file, "empty")->elements, 0);
  assert_null(safetensors_find(&file, "c"));
  assert_null(safetensors_find(&file, "__metadata__"));
  safetensors_free(&file);
}

static void test_no_tensors(void **state) {
  struct safetensors file;
  struct error error;
  assert_int_equal(parse("{}", 0, &file, &error), STATUS_OK);
  assert_int_equal(file.count, 0);
  safetensors_free(&file);
  refuse("{}", 1, "belong to no tensor");
}

static void expect_length(const uint8_t first[8], size_t have, uint64_t file_bytes, enum status expected) {
  uint64_t json = 77;
  struct error error = {0};
  assert_int_equal(safetensors_length(first, have, file_bytes, &json, &error), expected);
  assert_int_equal(json, expected == STATUS_OK ? 2 : 77);
}

static void test_length(void **state) {
  const uint8_t none[8] = {0}, two[8] = {2}, most[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  const uint8_t over[8] = {1, 0, 0x40, 6}; /* 100 MiB and 1 */
  expect_length(two, 8, 10, STATUS_OK);
  expect_length(two, 8, 9, STATUS_BAD_FILE);
  expect_length(none, 8, 9, STATUS_BAD_FILE);
  expect_length(two, 8, 8, STATUS_BAD_FILE);
  expect_length(two, 7, 7, STATUS_BAD_FILE);
  expect_length(two, 0, 0, STATUS_BAD_FILE);
  expect_length(most, 8, 10, STATUS_BAD_FILE);
  expect_length(most, 8, UINT64_MAX, STATUS_BAD_FILE);
  expect_length(over, 8, (uint64_t)1 << 40, STATUS_BAD_FILE);
}

static void test_length_beyond_file(void **state) {
  struct safetensors file;
  struct error error;
  assert_int_equal(safetensors_parse("{}", 2, 9, &file, &error), STATUS_BAD_FILE);
  assert_int_equal(safetensors_parse("{}", 2, 1, &file, &error), STATUS_BAD_FILE);
}

static void test_not_json(void **state) {
  refuse("", 0, "does not begin with '{'");
  refuse(" {}", 0, "does not begin with '{'");
  refuse("[]", 0, "does not begin with '{'");
  refuse("{\"a\":", 0, "header at byte");
  refuse("{} {}", 0, "header at byte");
  refuse("{}x", 0, "header at byte");
  refuse("{\"a\":1}", 0, "no dtype");
  struct safetensors file;
  struct error error;
  assert_int_equal(parse_bytes("{}\0", 3, 0, &file, &error), STATUS_BAD_FILE);
}

static void test_nul_and_invalid_text(void **state) {
  refuse("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "header at byte");
  refuse("{\"a\":{\"dtype\":\"U8\\u0000\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "header at byte");
  refuse("{\"\xff\xfe\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "header at byte");
}

static void test_deep(void **state) {
  enum { DEPTH = 100000 };
  char *json = malloc(DEPTH + 32);
  assert_non_null(json);
  int length = sprintf(json, "{\"a\":");
  memset(json + length, '[', DEPTH);
  json[length + DEPTH] = 0;
  refuse(json, 0, "header at byte");
  free(json);
}

static void test_duplicates(void **state) {
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         2, "duplicate");
  refuse("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate");
}

static void test_dtype(void **state) {
  refuse("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "'a' has no dtype");
  refuse("{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "'a' has no dtype");
  refuse("{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'f32'");
  /* A type that lies about the bytes. */
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,8]}}", 8, "'a' at byte");
  refuse("{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "8 bytes");
  refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "'a' at byte");
}

static void test_every_dtype_has_its_size(void **state) {
  static const struct {
    const char *name;
    unsigned bytes_of_8;
  } rows[] = {{"BOOL", 8}, {"F4", 4},   {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8}, {"F8_E4M3", 8},
              {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32},    {"U32", 32},
              {"F32", 32}, {"F64", 64}, {"I64", 64}, {"U64", 64}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char json[128];
    struct safetensors file;
    struct error error;
    snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%u]}}", rows[i].name,
             rows[i].bytes_of_8);
    assert_int_equal(parse(json, rows[i].bytes_of_8, &file, &error), STATUS_OK);
    assert_string_equal(safetensors_dtype_name(file.tensors[0].dtype), rows[i].name);
    safetensors_free(&file);
  }
}

static void test_shape(void **state) {
  refuse("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "no shape");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "no shape");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, "shape[0]");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1.0],\"data_offsets\":[0,1]}}", 1, "shape[1]");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}", 1, "shape[0]");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551617],\"data_offsets\":[0,1]}}", 1, "header at byte");
}

static void test_shape_overflow(void **state) {
  /* 2^40 * 2^40 is 0 modulo 2^64: an empty range would fit a product that wraps. */
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1099511627776,1099511627776],\"data_offsets\":[0,0]}}", 0, "64 bits");
  /* 2^62 * 4 bytes wraps where the elements do not. */
  refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "'a' at byte");
  /* A factor that comes back below 2^64 after it wrapped. */
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,1],\"data_offsets\":[0,0]}}", 0, "64 bits");
}

static void test_offsets(void **state) {
  const char *reason = "data_offsets";
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, reason);
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, reason);
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, reason);
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1, reason);
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1, reason);
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1e0]}}", 1, reason);
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 1,
         "ends at byte 2 of the data, which has 1");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9223372036854775806,9223372036854775807]}}", 1,
         "of the data");
}

static void test_overlap_and_holes(void **state) {
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
         7, "tensor 'b' at byte");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
         4, "overlaps");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[5,7]}}",
         7, "before tensor 'b'");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]}}", 5, "before tensor 'a'");
  refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 5, "at the end of the file");
}

static void test_metadata(void **state) {
  refuse("{\"__metadata__\":[]}", 0, "not a map");
  refuse("{\"__metadata__\":{\"a\":1}}", 0, "'a' is not a string");
}

static void test_too_many_tensors(void **state) {
  size_t room = 80 * ((size_t)LIMIT_FILE_TENSORS + 3), length = 1;
  char *json = malloc(room);
  assert_non_null(json);
  json[0] = '{';
  for (uint32_t i = 0; i < LIMIT_FILE_TENSORS + 1; i++)
    length += (size_t)sprintf(json + length, "%s\"%u\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                              i ? "," : "", i);
  sprintf(json + length, "}");
  refuse(json, 0, "65537 tensors");
  free(json);
}

/* Small ones, which take many times their bytes of memory once they are read; text of the same bytes does not. */
static void test_too_many_values(void **state) {
  static const char *const values[] = {"[],", "{},", "0,"};
  size_t room = 4 * LIMIT_FILE_VALUES + 100;
  char *json = malloc(room);
  assert_non_null(json);
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    size_t length = (size_t)sprintf(json, "{\"a\":[");
    for (size_t j = 0; j < LIMIT_FILE_VALUES; j++)
      length += (size_t)sprintf(json + length, "%s", values[i]);
    sprintf(json + length, "0]}");
    refuse(json, 0, "header has more than 2097152 values");
  }
  size_t length = (size_t)sprintf(json, "{\"__metadata__\":{\"a\":\"\\\"");
  memset(json + length, ',', LIMIT_FILE_VALUES);
  sprintf(json + length + LIMIT_FILE_VALUES, "\\\\\"}}");
  struct safetensors file;
  struct error error;
  assert_int_equal(parse(json, 0, &file, &error), STATUS_OK);
  safetensors_free(&file);
  free(json);
}

static void test_shown_text(void **state) {
  assert_string_equal(safetensors_show("a.b").text, "a.b");
  assert_string_equal(safetensors_show("\033[31m\xc3\xa9\n").text, "?[31m???");
  char name[200];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = 0;
  struct safetensors_shown shown = safetensors_show(name);
  assert_int_equal(strlen(shown.text), 72);
  assert_string_equal(shown.text + 69, "...");
  name[72] = 0;
  assert_string_equal(safetensors_show(name).text, name);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_good_header),
      cmocka_unit_test(test_no_tensors),
      cmocka_unit_test(test_length),
      cmocka_unit_test(test_length_beyond_file),
      cmocka_unit_test(test_not_json),
      cmocka_unit_test(test_nul_and_invalid_text),
      cmocka_unit_test(test_deep),
      cmocka_unit_test(test_duplicates),
      cmocka_unit_test(test_dtype),
      cmocka_unit_test(test_every_dtype_has_its_size),
      cmocka_unit_test(test_shape),
      cmocka_unit_test(test_shape_overflow),
      cmocka_unit_test(test_offsets),
      cmocka_unit_test(test_overlap_and_holes),
      cmocka_unit_test(test_metadata),
      cmocka_unit_test(test_too_many_tensors),
      cmocka_unit_test(test_too_many_values),
      cmocka_unit_test(test_shown_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
