/* Descriptors beside a record (SCM_RIGHTS), as sendmsg(2) and recvmsg(2) lay them out. Fills and reads a msghdr; no
 * call to the system. */
#pragma once

#include "../limits.h"

#include <stddef.h>
#include <sys/socket.h>

/* Room for LIMIT_MESSAGE_FDS and no more: with more of them the kernel sets MSG_CTRUNC, and closes what is over. */
union rights {
  struct cmsghdr align;
  char bytes[CMSG_SPACE(LIMIT_MESSAGE_FDS * sizeof(int))];
};

/* Before sendmsg: `count` descriptors, LIMIT_MESSAGE_FDS at most; 0: none. `rights` must last until it is sent. */
void rights_put(union rights *rights, struct msghdr *header, const int *fds, size_t count);
/* Before recvmsg. */
void rights_expect(union rights *rights, struct msghdr *header);
/* After recvmsg: how many came. They are the caller's from then on. */
size_t rights_take(struct msghdr *header, int fds[LIMIT_MESSAGE_FDS]);
