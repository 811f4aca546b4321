/* Libraries of the CUDA toolkit, opened at run time. */
#ifndef KERNELS_CUDA_TOOLKIT_H
#define KERNELS_CUDA_TOOLKIT_H

/* Opens `path`, or where it is NULL or empty `name` ("libnvrtc.so") of version 13 or 12, by the system's search and
 * then in the toolkit's usual folders. `flags` are dlopen's. NULL where there is none; dlerror() then has the reason.
 */
void *toolkit_open(const char *path, const char *name, int flags);

#endif
