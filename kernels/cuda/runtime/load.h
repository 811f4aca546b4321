/* Kernels of ours, loaded before they are needed: the driver would load each when it is first launched, and the product
 * that it is launched for would wait. */
#pragma once

struct driver;

/* A kernel of a file of them, as the runtime knows it: load.cuh adds one of each file before main begins. */
struct load_file {
  const void *kernel;
  struct load_file *next;
};
extern struct load_file *load_files;

/* Loads what this build has for the current device of all files. What cannot be loaded now is when it is launched, or
 * fails there. */
void load_kernels(const struct driver *driver);
