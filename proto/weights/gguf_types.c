#include "gguf_types.h"

#include <stddef.h>

static const struct gguf_type_info types[] = {
#define ROW(number, name, block, bytes) [number] = {#name, block, bytes},
    GGUF_TYPES(ROW)
#undef ROW
};

const struct gguf_type_info *gguf_type_find(uint64_t type) {
  return type < sizeof types / sizeof *types && types[type].name != NULL ? &types[type] : NULL;
}

const char *gguf_type_name(uint32_t type) {
  const struct gguf_type_info *info = gguf_type_find(type);
  return info != NULL ? info->name : "unknown";
}
