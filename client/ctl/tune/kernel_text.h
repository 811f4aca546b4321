/* A kernel's text taken apart: "FAMILY name=value name=value". Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { KERNEL_WORD_BYTES = 48 };

struct kernel_parameter {
  char name[KERNEL_WORD_BYTES];
  long value;
};

/* Its family's name. */
void kernel_family(const char *kernel, char out[KERNEL_WORD_BYTES]);
/* The parameter behind `*at`, which goes on behind it; at first it is the kernel. False: there is none any more. */
bool kernel_next(const char **at, struct kernel_parameter *out);
/* The value of a parameter; `absent` where it has none of that name. */
long kernel_value(const char *kernel, const char *name, long absent);
