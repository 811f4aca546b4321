/* The catalog that an earlier gemmd left, with the right hash behind it: what is read can be written, and is the same
 * when it is read again. */
#include "daemon/supervisor/weights/catalog_image.h"

#include <blake2.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HASH_BYTES = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct catalog catalog, again;
  char backend[CATALOG_BACKEND_BYTES];
  struct error error;
  uint8_t *image = malloc(size + HASH_BYTES), *written;
  size_t length;
  if (image == NULL)
    return 0;
  memcpy(image, data, size);
  blake2b(image + size, image, NULL, HASH_BYTES, size, 0);
  catalog_init(&catalog);
  catalog_init(&again);
  if (catalog_image_read(&catalog, backend, image, size + HASH_BYTES, &error) == STATUS_OK) {
    if (catalog_image_write(&catalog, backend, &written, &length, &error) != STATUS_OK ||
        catalog_image_read(&again, backend, written, length, &error) != STATUS_OK ||
        again.name_count != catalog.name_count || again.weight_count != catalog.weight_count)
      abort();
    free(written);
  }
  catalog_free(&catalog);
  catalog_free(&again);
  free(image);
  return 0;
}
