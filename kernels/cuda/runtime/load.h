/* Kernels of ours, loaded before they are needed: the driver would load each when it is first launched, and the product
 * that it is launched for would wait. */
#ifndef KERNELS_CUDA_RUNTIME_LOAD_H
#define KERNELS_CUDA_RUNTIME_LOAD_H

struct driver;

/* Loads what this build has for the current device of the file that has kernel `any`, as the runtime knows it. What
 * cannot be loaded now is when it is launched, or fails there. */
void load_kernels(const struct driver *driver, const void *any);

#endif
