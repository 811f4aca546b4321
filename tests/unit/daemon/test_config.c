#include "daemon/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct config config;
static struct error failure;

static int fresh(void **state) {
  config_defaults(&config);
  memset(&failure, 0, sizeof failure);
  return 0;
}

static void defaults_are_those_of_the_table(void **state) {
  assert_string_equal(config.socket, "/run/gemmd/gemmd.sock");
  assert_int_equal(config.socket_mode, 0660);
  assert_string_equal(config.backend, "auto");
  assert_int_equal(config.sessions_max, 256);
}

static void names_take_dashes_and_underscores(void **state) {
  assert_int_equal(config_set(&config, "cpu-threads", "3", &failure), STATUS_OK);
  assert_int_equal(config.cpu_threads, 3);
  assert_int_equal(config_set(&config, "cpu_threads", "4", &failure), STATUS_OK);
  assert_int_equal(config.cpu_threads, 4);
  assert_int_equal(config_set(&config, "cpu_thread", "4", &failure), STATUS_NOT_FOUND);
  assert_non_null(strstr(failure.text, "cpu_thread"));
  assert_int_equal(config_set(&config, "cpu_threadss", "4", &failure), STATUS_NOT_FOUND);
}

static void sizes_take_a_unit(void **state) {
  assert_int_equal(config_set(&config, "slab_bytes", "4M", &failure), STATUS_OK);
  assert_int_equal(config.slab_bytes, 4 << 20);
  assert_int_equal(config_set(&config, "slab_bytes", "4096K", &failure), STATUS_OK);
  assert_int_equal(config.slab_bytes, 4 << 20);
  assert_int_equal(config_set(&config, "slab_bytes", "2g", &failure), STATUS_OK);
  assert_int_equal(config.slab_bytes, (int64_t)2 << 30);
}

static void a_leading_zero_means_octal(void **state) {
  assert_int_equal(config_set(&config, "socket_mode", "0600", &failure), STATUS_OK);
  assert_int_equal(config.socket_mode, 0600);
  assert_int_equal(config_set(&config, "socket_mode", "0", &failure), STATUS_OK);
  assert_int_equal(config.socket_mode, 0);
}

static void words_are_checked(void **state) {
  static const char *const bad[] = {"", "of", "offs", "off,", "off, background", ",", " ", "Eager"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(config_set(&config, "tune", bad[i], &failure), STATUS_INVALID);
    assert_non_null(strstr(failure.text, "tune must be one of off, background, eager"));
    assert_string_equal(config.tune, "background");
  }
  assert_int_equal(config_set(&config, "tune", "off", &failure), STATUS_OK);
  assert_int_equal(config_set(&config, "tune", "eager", &failure), STATUS_OK);
  assert_string_equal(config.tune, "eager");
  assert_int_equal(config_set(&config, "log_level", "loud", &failure), STATUS_INVALID);
  assert_int_equal(config_set(&config, "backend", "xpu", &failure), STATUS_INVALID);
}

static void numbers_are_checked(void **state) {
  static const char *const bad[] = {
      "", " ", "x", "4x", "4MM", "4 M", "M", "1e3", "0x10", "-", "99999999999999999999", "9223372036854775807G", "+4"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(config_set(&config, "devices", bad[i], &failure), STATUS_INVALID);
    assert_non_null(strstr(failure.text, "devices must be an integer"));
  }
  assert_int_equal(config.devices, 0);
}

static void ranges_are_inclusive(void **state) {
  assert_int_equal(config_set(&config, "devices", "64", &failure), STATUS_OK);
  assert_int_equal(config_set(&config, "devices", "65", &failure), STATUS_INVALID);
  assert_string_equal(failure.text, "devices must be 0..64, got 65");
  assert_int_equal(config_set(&config, "devices", "-1", &failure), STATUS_INVALID);
  assert_string_equal(failure.text, "devices must be 0..64, got -1");
  assert_int_equal(config.devices, 64);
}

static void text_is_bounded(void **state) {
  char text[CONFIG_STRING_BYTES + 1];
  memset(text, 'a', sizeof text);
  text[CONFIG_STRING_BYTES] = '\0';
  assert_int_equal(config_set(&config, "cublaslt", text, &failure), STATUS_INVALID);
  text[CONFIG_STRING_BYTES - 1] = '\0';
  assert_int_equal(config_set(&config, "cublaslt", text, &failure), STATUS_OK);
  assert_string_equal(config.cublaslt, text);
}

static void every_value_survives_the_way_to_a_child(void **state) {
  struct config other;
  assert_int_equal(config_set(&config, "socket", "/tmp/a b.sock", &failure), STATUS_OK);
  assert_int_equal(config_set(&config, "socket_mode", "0606", &failure), STATUS_OK);
  assert_int_equal(config_set(&config, "arena_bytes_max", "1G", &failure), STATUS_OK);
  config_defaults(&other);
  assert_memory_not_equal(&config, &other, sizeof config);
  for (size_t i = 0; i < config_option_count(); i++) {
    struct config_option option;
    char value[CONFIG_STRING_BYTES];
    config_option_at(i, &option);
    config_value(&config, i, value, sizeof value);
    assert_int_equal(config_set(&other, option.name, value, &failure), STATUS_OK);
  }
  assert_memory_equal(&config, &other, sizeof config);
}

static void every_fallback_is_what_defaults_sets(void **state) {
  struct config other;
  memset(&other, 0, sizeof other);
  for (size_t i = 0; i < config_option_count(); i++) {
    struct config_option option;
    config_option_at(i, &option);
    assert_true(option.summary[0] != '\0');
    assert_int_equal(config_set(&other, option.name, option.fallback, &failure), STATUS_OK);
  }
  assert_memory_equal(&config, &other, sizeof config);
}

/* ---- files */

static char path[] = "/tmp/gemmd-test-config-XXXXXX";

static enum status read_text(const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
  assert_int_equal(fclose(file), 0);
  return config_read(&config, path, &failure);
}

static int make_file(void **state) {
  strcpy(path + strlen(path) - 6, "XXXXXX");
  int fd = mkstemp(path);
  if (fd < 0)
    return -1;
  close(fd);
  return fresh(state);
}

static int remove_file(void **state) {
  return unlink(path);
}

static void a_file_is_read(void **state) {
  assert_int_equal(read_text("# a comment\n; another\n\nsocket = /tmp/x.sock\n  slab_bytes=8M  \n\tdevices : 2\n"
                             "cublaslt =\nbackend = cpu"),
                   STATUS_OK);
  assert_string_equal(config.socket, "/tmp/x.sock");
  assert_int_equal(config.slab_bytes, 8 << 20);
  assert_int_equal(config.devices, 2);
  assert_string_equal(config.cublaslt, "");
  assert_string_equal(config.backend, "cpu");
}

static void assert_fails_at(const char *text, int line, const char *why) {
  char where[128];
  assert_int_equal(read_text(text), STATUS_INVALID);
  snprintf(where, sizeof where, "%s:%d: ", path, line);
  assert_ptr_equal(strstr(failure.text, where), failure.text);
  assert_non_null(strstr(failure.text, why));
}

static void errors_name_path_and_line(void **state) {
  assert_fails_at("socket = a\nnonsense = 1\n", 2, "unknown option");
  assert_fails_at("\n\ndevices = 65\ndevices = x\n", 3, "devices must be 0..64");
  assert_fails_at("socket = a\nno equals sign\n", 2, "name = value");
  assert_fails_at("[main]\nsocket = a\n", 2, "sections");
}

static void a_line_that_is_too_long_is_not_split(void **state) {
  char text[2048];
  memset(text, 'a', sizeof text);
  memcpy(text, "socket = ", 9);
  text[1500] = '\n';
  strcpy(text + 1501, "devices = 1\n");
  assert_fails_at(text, 1, "too long");
}

static void a_long_comment_and_a_long_value(void **state) {
  char text[1024], value[CONFIG_STRING_BYTES];
  memset(value, 'v', sizeof value - 1);
  value[sizeof value - 1] = '\0';
  snprintf(text, sizeof text, "# %s, %s\n  cublaslt  =  %s  \ndevices = 1\n", value, "= which is no option", value);
  assert_int_equal(read_text(text), STATUS_OK);
  assert_string_equal(config.cublaslt, value);
  assert_int_equal(config.devices, 1);
  snprintf(text, sizeof text, "cublaslt = %sv", value);
  assert_fails_at(text, 1, "cublaslt may have 255 bytes, got 256");
}

static void an_indented_line_is_no_continuation(void **state) {
  assert_int_equal(read_text("backend = cpu\n  devices = 3\n"), STATUS_OK);
  assert_string_equal(config.backend, "cpu");
  assert_int_equal(config.devices, 3);
}

static void a_value_is_the_whole_line(void **state) {
  assert_int_equal(read_text("tune_pins = a*=cpu threads=2 ; b*=cpu threads=1 \r\nsocket = ;x = y: z\nnvrtc=;"),
                   STATUS_OK);
  assert_string_equal(config.tune_pins, "a*=cpu threads=2 ; b*=cpu threads=1");
  assert_string_equal(config.socket, ";x = y: z");
  assert_string_equal(config.nvrtc, ";");
  assert_fails_at("devices = 1 ; two\n", 1, "devices must be an integer, got \"1 ; two\"");
}

static void a_missing_file_is_named(void **state) {
  assert_int_equal(config_read(&config, "/nonexistent/gemmd.conf", &failure), STATUS_NOT_FOUND);
  assert_non_null(strstr(failure.text, "/nonexistent/gemmd.conf"));
  assert_int_equal(config_read(&config, "/", &failure), STATUS_SYSTEM);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(defaults_are_those_of_the_table, fresh),
      cmocka_unit_test_setup(names_take_dashes_and_underscores, fresh),
      cmocka_unit_test_setup(sizes_take_a_unit, fresh),
      cmocka_unit_test_setup(a_leading_zero_means_octal, fresh),
      cmocka_unit_test_setup(words_are_checked, fresh),
      cmocka_unit_test_setup(numbers_are_checked, fresh),
      cmocka_unit_test_setup(ranges_are_inclusive, fresh),
      cmocka_unit_test_setup(text_is_bounded, fresh),
      cmocka_unit_test_setup(every_value_survives_the_way_to_a_child, fresh),
      cmocka_unit_test_setup(every_fallback_is_what_defaults_sets, fresh),
      cmocka_unit_test_setup_teardown(a_file_is_read, make_file, remove_file),
      cmocka_unit_test_setup_teardown(errors_name_path_and_line, make_file, remove_file),
      cmocka_unit_test_setup_teardown(a_line_that_is_too_long_is_not_split, make_file, remove_file),
      cmocka_unit_test_setup_teardown(a_long_comment_and_a_long_value, make_file, remove_file),
      cmocka_unit_test_setup_teardown(an_indented_line_is_no_continuation, make_file, remove_file),
      cmocka_unit_test_setup_teardown(a_value_is_the_whole_line, make_file, remove_file),
      cmocka_unit_test_setup(a_missing_file_is_named, fresh),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
