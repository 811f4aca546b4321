#include "rights.h"

#include <string.h>

void rights_put(union rights *rights, struct msghdr *header, const int *fds, size_t count) {
  if (count == 0)
    return;
  memset(rights, 0, sizeof *rights);
  header->msg_control = rights->bytes;
  header->msg_controllen = CMSG_SPACE(count * sizeof *fds);
  struct cmsghdr *part = CMSG_FIRSTHDR(header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(count * sizeof *fds);
  memcpy(CMSG_DATA(part), fds, count * sizeof *fds);
}

void rights_expect(union rights *rights, struct msghdr *header) {
  header->msg_control = rights->bytes;
  header->msg_controllen = sizeof rights->bytes;
}

size_t rights_take(struct msghdr *header, int fds[LIMIT_MESSAGE_FDS]) {
  for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part != NULL; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
      continue;
    size_t bytes = part->cmsg_len - CMSG_LEN(0); /* the kernel puts all of a record into one part */
    memcpy(fds, CMSG_DATA(part), bytes);
    return bytes / sizeof *fds;
  }
  return 0;
}
