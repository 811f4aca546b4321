// gemmclient.h as C++17, linked with the archive.
#include "client/gemmclient.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

extern "C" {
#include <cmocka.h>
}

namespace {

struct Disconnect {
  void operator()(gemmd_session *session) const {
    gemmd_disconnect(session);
  }
};
using Session = std::unique_ptr<gemmd_session, Disconnect>;

void names_of_statuses(void **) {
  assert_string_equal(gemmd_status_name(GEMMD_OK), "OK");
  assert_string_equal(gemmd_status_name(GEMMD_INTERNAL), "INTERNAL");
  assert_string_equal(gemmd_status_name(GEMMD_INTERNAL - 1), "UNKNOWN");
  assert_string_equal(gemmd_status_name(1), "UNKNOWN");
  assert_string_equal(gemmd_status_name(INT32_MIN), "UNKNOWN");
  assert_true(gemmd_status_retryable(GEMMD_BUSY));
  assert_false(gemmd_status_retryable(GEMMD_INVALID));
  assert_false(gemmd_status_retryable(-GEMMD_BUSY));
  assert_true(std::strlen(gemmd_version()) >= 5);
}

void a_failed_connect_leaves_a_sentence(void **) {
  gemmd_session *raw = nullptr;
  gemmd_options options{};
  options.name = "header \xff";
  int status = gemmd_connect(&raw, "/nonexistent/gemmd.sock", &options);
  Session session(raw);
  assert_int_equal(status, GEMMD_DISCONNECTED);
  assert_string_equal(gemmd_error(session.get()),
                      "cannot connect to /nonexistent/gemmd.sock: No such file or directory");
  assert_null(gemmd_alloc(session.get(), 1));
  assert_int_equal(gemmd_ping(session.get(), nullptr), GEMMD_DISCONNECTED);
  assert_int_equal(gemmd_wait_any(session.get(), 0, nullptr), GEMMD_DISCONNECTED);
  assert_int_equal(gemmd_dispatch(session.get(), 0), GEMMD_DISCONNECTED);
  assert_int_equal(gemmd_fd(session.get()), -1);
}

void structs_are_plain(void **) {
  gemmd_product product{};
  product.x_type = GEMMD_BF16;
  product.y_type = GEMMD_F32;
  gemmd_load load{};
  load.format = GEMMD_FORMAT_INT2;
  load.progress = [](void *, std::uint64_t, std::uint64_t) {};
  assert_null(product.bias);
  assert_int_equal(load.scale, GEMMD_SCALE_DEFAULT);
  assert_int_equal(load.placement, GEMMD_PLACEMENT_SINGLE);
}

} // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_of_statuses),
      cmocka_unit_test(a_failed_connect_leaves_a_sentence),
      cmocka_unit_test(structs_are_plain),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
