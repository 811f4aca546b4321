/* Who a client is and what that makes it: from its socket's credentials, read once at accept. No name service is
 * asked on the way of a connection; the names of groups are looked up once, at start. */
#pragma once

#include "../../../proto/status.h"
#include "../../../proto/wire/message.h"
#include "../../config.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum role { ROLE_NONE, ROLE_USER, ROLE_ADMIN };

enum { ROLE_IPC_USERS = 32 };

/* Which groups make a role, and who may do what a role alone does not allow. */
struct role_rules {
  bool everybody; /* whoever may connect is a user */
  bool admins;    /* there is a group of admins */
  gid_t use, admin;
  uid_t ipc_users[ROLE_IPC_USERS]; /* whose memory is taken by legacy IPC handles */
  size_t ipc_user_count;
  bool direct; /* there is a group that may borrow weights */
  gid_t direct_group;
};

struct role_peer {
  uid_t uid;
  pid_t pid;
  gid_t *groups; /* owned; the group of its process and the supplementary ones */
  size_t group_count;
};

/* From the options use_group and admin_group, a name or a number each, "" for none, direct, "off" for none, and
 * ipc_users, with commas between.
 * INVALID for a group or user that is not there, or more than ROLE_IPC_USERS. */
MUST_CHECK enum status role_rules_make(const struct config *config, struct role_rules *out, struct error *error);
/* SO_PEERCRED and SO_PEERGROUPS. */
MUST_CHECK enum status role_peer_read(int socket, struct role_peer *out, struct error *error);
void role_peer_free(struct role_peer *peer);
/* Root and the user that gemmd runs as (`self`) are always admins. Pure. */
enum role role_of(const struct role_rules *rules, const struct role_peer *peer, uid_t self);
/* Whether the memory of this user is taken by legacy IPC handles: admins are no exception. */
bool role_may_ipc(const struct role_rules *rules, uid_t uid);
/* Whether a process may have the memory of weights: the user that gemmd runs as (`self`), and the group of the option
 * direct. Root and admins are no exception. Pure. */
bool role_may_borrow(const struct role_rules *rules, const struct role_peer *peer, uid_t self);
/* Whether a role may send commands of that permission. */
bool role_may(enum role role, enum permission permission);
