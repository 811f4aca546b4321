#include "role.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { GROUPS_FIRST_GUESS = 32, GROUPS_MOST = 65536 }; /* the kernel's NGROUPS_MAX */

static enum status find_group(const char *option, const char *text, gid_t *out, struct error *error) {
  char *end;
  errno = 0;
  unsigned long number = strtoul(text, &end, 10);
  if (*end == '\0' && errno == 0 && number < (gid_t)-1) {
    *out = (gid_t)number;
    return STATUS_OK;
  }
  const struct group *group = getgrnam(text);
  if (group == NULL)
    return error_set(error, STATUS_INVALID, "%s: there is no group \"%.64s\"", option, text);
  *out = group->gr_gid;
  return STATUS_OK;
}

static enum status find_user(const char *text, uid_t *out, struct error *error) {
  char *end;
  errno = 0;
  unsigned long number = strtoul(text, &end, 10);
  if (*text != '\0' && *end == '\0' && errno == 0 && number < (uid_t)-1) {
    *out = (uid_t)number;
    return STATUS_OK;
  }
  const struct passwd *user = getpwnam(text);
  if (user == NULL)
    return error_set(error, STATUS_INVALID, "ipc_users: there is no user \"%.64s\"", text);
  *out = user->pw_uid;
  return STATUS_OK;
}

static enum status find_ipc_users(const char *text, struct role_rules *out, struct error *error) {
  char names[CONFIG_STRING_BYTES], *rest;
  memcpy(names, text, sizeof names);
  enum status status = STATUS_OK;
  for (char *name = strtok_r(names, ", ", &rest); name != NULL && status == STATUS_OK;
       name = strtok_r(NULL, ", ", &rest)) {
    if (out->ipc_user_count == ROLE_IPC_USERS)
      return error_set(error, STATUS_INVALID, "ipc_users: more than %d users", ROLE_IPC_USERS);
    status = find_user(name, &out->ipc_users[out->ipc_user_count++], error);
  }
  return status;
}

enum status role_rules_make(const struct config *config, struct role_rules *out, struct error *error) {
  enum status status = STATUS_OK;
  *out = (struct role_rules){.everybody = config->use_group[0] == '\0',
                             .admins = config->admin_group[0] != '\0',
                             .direct = strcmp(config->direct, "off") != 0};
  if (!out->everybody)
    status = find_group("use_group", config->use_group, &out->use, error);
  if (status == STATUS_OK && out->admins)
    status = find_group("admin_group", config->admin_group, &out->admin, error);
  if (status == STATUS_OK && out->direct)
    status = find_group("direct", config->direct, &out->direct_group, error);
  if (status == STATUS_OK)
    status = find_ipc_users(config->ipc_users, out, error);
  return status;
}

/* ERANGE says how many bytes the groups take; they do not change afterwards. */
static enum status read_groups(int socket, struct role_peer *peer, gid_t own, struct error *error) {
  socklen_t bytes = GROUPS_FIRST_GUESS * sizeof(gid_t);
  for (int attempt = 0; attempt < 2; attempt++) {
    gid_t *groups = realloc(peer->groups, bytes + sizeof(gid_t));
    if (groups == NULL)
      return error_set(error, STATUS_NOMEM, "no memory for the groups of a client");
    peer->groups = groups;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0) {
      peer->group_count = bytes / sizeof(gid_t);
      groups[peer->group_count++] = own;
      return STATUS_OK;
    }
    if (errno != ERANGE || bytes > GROUPS_MOST * sizeof(gid_t))
      break;
  }
  return error_set(error, STATUS_SYSTEM, "the groups of a client cannot be read: %s", strerror(errno));
}

enum status role_peer_read(int socket, struct role_peer *out, struct error *error) {
  struct ucred credentials;
  socklen_t bytes = sizeof credentials;
  *out = (struct role_peer){.groups = NULL};
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0)
    return error_set(error, STATUS_SYSTEM, "a client's credentials cannot be read: %s", strerror(errno));
  out->uid = credentials.uid;
  out->pid = credentials.pid;
  enum status status = read_groups(socket, out, credentials.gid, error);
  if (status != STATUS_OK)
    role_peer_free(out);
  return status;
}

void role_peer_free(struct role_peer *peer) {
  free(peer->groups);
  peer->groups = NULL;
  peer->group_count = 0;
}

static bool has_group(const struct role_peer *peer, gid_t group) {
  for (size_t i = 0; i < peer->group_count; i++)
    if (peer->groups[i] == group)
      return true;
  return false;
}

enum role role_of(const struct role_rules *rules, const struct role_peer *peer, uid_t self) {
  if (peer->uid == 0 || peer->uid == self || (rules->admins && has_group(peer, rules->admin)))
    return ROLE_ADMIN;
  return rules->everybody || has_group(peer, rules->use) ? ROLE_USER : ROLE_NONE;
}

bool role_may_borrow(const struct role_rules *rules, const struct role_peer *peer, uid_t self) {
  return peer->uid == self || (rules->direct && has_group(peer, rules->direct_group));
}

bool role_may_ipc(const struct role_rules *rules, uid_t uid) {
  for (size_t i = 0; i < rules->ipc_user_count; i++)
    if (rules->ipc_users[i] == uid)
      return true;
  return false;
}

bool role_may(enum role role, enum permission permission) {
  switch (permission) {
  case PERMISSION_USER:
    return role != ROLE_NONE;
  case PERMISSION_ADMIN:
    return role == ROLE_ADMIN;
  default:
    return false;
  }
}
