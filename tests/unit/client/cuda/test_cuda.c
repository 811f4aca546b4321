/* libgemmclient-cuda: its own declarations of the driver's interface are the toolkit's, where one is installed; and
 * what it says where there is no driver. With a driver, end_to_end/test_tensors.c uses it. */
#include "client/cuda/driver.h"
#include "client/gemmclient_cuda.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#define SAME_SIZE(theirs, ours) _Static_assert(sizeof(theirs) == sizeof(ours), #theirs)
#define SAME_PLACE(theirs, field, ours, name) _Static_assert(offsetof(theirs, field) == offsetof(ours, name), #field)

SAME_SIZE(CUresult, driver_result);
SAME_SIZE(CUdevice, driver_device);
SAME_SIZE(CUdeviceptr, driver_pointer);
SAME_SIZE(CUmemGenericAllocationHandle, driver_allocation);
SAME_SIZE(CUmemLocation, struct driver_location);
SAME_SIZE(CUmemAllocationProp, struct driver_properties);
SAME_PLACE(CUmemAllocationProp, requestedHandleTypes, struct driver_properties, exports);
SAME_PLACE(CUmemAllocationProp, location, struct driver_properties, location);
SAME_SIZE(CUmemAccessDesc, struct driver_access);
SAME_SIZE(CUevent, driver_event);
SAME_SIZE(CUipcMemHandle, struct driver_ipc);
SAME_SIZE(CUipcEventHandle, struct driver_ipc);
_Static_assert((CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS) == (int)DRIVER_EVENT_SHARED, "flags of an event");
SAME_PLACE(CUmemAccessDesc, flags, struct driver_access, flags);
_Static_assert(CUDA_ERROR_OUT_OF_MEMORY == (int)DRIVER_OUT_OF_MEMORY, "status");
_Static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == (int)DRIVER_PINNED, "kind of allocation");
_Static_assert(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == (int)DRIVER_POSIX_DESCRIPTOR, "kind of export");
_Static_assert(CU_MEM_LOCATION_TYPE_DEVICE == (int)DRIVER_ON_DEVICE, "kind of location");
_Static_assert(CU_MEM_ACCESS_FLAGS_PROT_READWRITE == (int)DRIVER_READ_WRITE, "access");
_Static_assert(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED == (int)DRIVER_RECOMMENDED, "granularity");
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void without_a_driver(void **state) {
  const char *why;
  gemmd_cuda_memory *memory;
  assert_string_equal(gemmd_cuda_error(), "");
  if (driver_table(&why) != NULL)
    skip();
  assert_true(strlen(why) > 0);
  assert_int_equal(gemmd_cuda_alloc(NULL, 0, 0, 4096, &memory), GEMMD_UNSUPPORTED);
  assert_null(memory);
  assert_int_equal(gemmd_cuda_open(NULL, 0, &why, &memory), GEMMD_UNSUPPORTED);
  assert_null(memory);
  gemmd_cuda_event *event;
  assert_int_equal(gemmd_cuda_event_create(NULL, 0, &event), GEMMD_UNSUPPORTED);
  assert_null(event);
  assert_string_equal(gemmd_cuda_error(), why);
}

static void nothing_is_freed(void **state) {
  assert_int_equal(gemmd_cuda_free(NULL), GEMMD_OK);
  assert_int_equal(gemmd_cuda_event_free(NULL), GEMMD_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_a_driver), cmocka_unit_test(nothing_is_freed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
