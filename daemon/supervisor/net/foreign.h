/* Looking at descriptors that clients sent. On a file system in user space the client decides when a stat returns: in
 * the loop that would hold up everybody. So nothing is asked of a file that the kernel does not know by itself. */
#pragma once

#include "../../../proto/status.h"

#include <stdbool.h>
#include <stdint.h>

/* A regular file that is open for reading, on no file system that a user other than root serves, nor, but for
 * `trusted`, on one that may lie above such a one; BAD_DESCRIPTOR with the reason otherwise. */
MUST_CHECK enum status foreign_check_file(int fd, bool trusted, struct error *error);
/* Of a file that foreign_check_file has passed; UINT64_MAX where it does not say. */
uint64_t foreign_file_bytes(int fd);
/* Which file it is and when it was last changed. */
struct foreign_facts {
  uint64_t device, inode, bytes;
  int64_t modified_ns, changed_ns; /* since 1970 */
};
/* The same of such a file; false where it does not say. */
bool foreign_file_facts(int fd, struct foreign_facts *out);
/* A memfd, or what a driver made: nothing that a user serves or that waits for anybody. BAD_DESCRIPTOR otherwise. */
MUST_CHECK enum status foreign_check_memory(int fd, struct error *error);
