/* Who a client is and what that makes it: from its socket's credentials, read once at accept. No name service is
 * asked on the way of a connection; the names of groups are looked up once, at start. */
#ifndef SUPERVISOR_ROLE_H
#define SUPERVISOR_ROLE_H

#include "../../proto/message.h"
#include "../../proto/status.h"
#include "../config.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum role { ROLE_NONE, ROLE_USER, ROLE_ADMIN };

/* Which groups make a role. */
struct role_rules {
  bool everybody; /* whoever may connect is a user */
  bool admins;    /* there is a group of admins */
  gid_t use, admin;
};

struct role_peer {
  uid_t uid;
  pid_t pid;
  gid_t *groups; /* owned; the group of its process and the supplementary ones */
  size_t group_count;
};

/* From the options use_group and admin_group: a name or a number each, "" for none. INVALID for a group that is not
 * there. */
MUST_CHECK enum status role_rules_make(const struct config *config, struct role_rules *out, struct error *error);
/* SO_PEERCRED and SO_PEERGROUPS. */
MUST_CHECK enum status role_peer_read(int socket, struct role_peer *out, struct error *error);
void role_peer_free(struct role_peer *peer);
/* Root and the user that gemmd runs as (`self`) are always admins. Pure. */
enum role role_of(const struct role_rules *rules, const struct role_peer *peer, uid_t self);
/* Whether a role may send commands of that permission. */
bool role_may(enum role role, enum permission permission);

#endif
