// What a file of kernels says to have all of them loaded before they are needed.
#pragma once

#include "load.h"

// Made with any one of the file's kernels.
struct load_early : load_file {
  template <typename... Parameters>
  load_early(void (*kernel)(Parameters...)) : load_file{reinterpret_cast<const void *>(kernel), load_files} {
    load_files = this;
  }
};
