// Conversions of FP8, which have instructions of their own since 8.9: a file that has them is in the Makefile's list of
// those that are compiled for 8.9 by themselves.
#pragma once

#ifndef COMPILED_FOR_89
#error "a file that converts FP8 belongs into FP8_KERNELS of the Makefile"
#endif

#include <cuda_fp8.h>
