/* Kernels of ours, loaded before they are needed: the driver would load each when it is first launched, and the product
 * that it is launched for would wait. */
#ifndef KERNELS_CUDA_RUNTIME_LOAD_H
#define KERNELS_CUDA_RUNTIME_LOAD_H

#ifdef __cplusplus
extern "C" {
#endif

/* The files that have kernels, but for what is tried once as the device is opened (places.cu). */
#define LOAD_FILES(ROW)                                                                                                \
  ROW(activate)                                                                                                        \
  ROW(epilogue)                                                                                                        \
  ROW(few)                                                                                                             \
  ROW(fp8_many)                                                                                                        \
  ROW(hopper)                                                                                                          \
  ROW(int2)                                                                                                            \
  ROW(int2_few)                                                                                                        \
  ROW(int2_many)                                                                                                       \
  ROW(int2_scales)                                                                                                     \
  ROW(int2a8)                                                                                                          \
  ROW(many)                                                                                                            \
  ROW(plain)                                                                                                           \
  ROW(quantize)                                                                                                        \
  ROW(rows)                                                                                                            \
  ROW(checksum)

/* One kernel of each, which leads to the others. */
#define ROW(file) const void *kernel_of_##file(void);
LOAD_FILES(ROW)
#undef ROW

struct driver;

/* Loads what this build has for the current device. What cannot be loaded now is when it is launched, or fails there.
 */
void load_kernels(const struct driver *driver);

#ifdef __cplusplus
}
#endif
#endif
