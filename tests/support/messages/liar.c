#include "liar.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

void liar_send(struct liar *liar, const void *bytes, size_t length, const int *fds, size_t fd_count) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(16 * sizeof(int))];
  } control;
  memset(&control, 0, sizeof control);
  struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  if (fd_count > 0) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
  }
  if (sendmsg(liar->socket, &header, MSG_NOSIGNAL) < 0)
    perror("liar: sendmsg");
}

void liar_message(struct liar *liar, enum message_kind kind, uint32_t id, uint32_t code,
                  const struct message_type *type, const void *body, const int *fds, size_t fd_count) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head = {.kind = kind, .id = id, .code = code};
  struct error error;
  size_t length;
  if (message_encode(&head, type, body, bytes, sizeof bytes, &length, &error) == STATUS_OK)
    liar_send(liar, bytes, length, fds, fd_count);
  else
    fprintf(stderr, "liar: %s\n", error.text);
}

void liar_reply(struct liar *liar, const struct message_type *type, const void *body, const int *fds, size_t fd_count) {
  liar_message(liar, MESSAGE_REPLY, liar->id, STATUS_OK, type, body, fds, fd_count);
}

/* Waits for a request; its number, or 0 at the end. */
uint32_t liar_request(struct liar *liar) {
  static uint8_t bytes[LIMIT_MESSAGE_BYTES];
  struct message_head head = {.code = 0};
  struct message_body body;
  struct error error;
  ssize_t length = recv(liar->socket, bytes, sizeof bytes, 0);
  if (length <= 0 || message_decode_head(bytes, (size_t)length, &head, &body, &error) != STATUS_OK)
    return 0;
  liar->id = head.id;
  return head.code;
}

void liar_until_closed(struct liar *liar) {
  while (liar_request(liar) != 0)
    continue;
}

/* ---- honest answers */

const struct message_hello_reply liar_good_hello = {.version = PROTOCOL_VERSION_MAX,
                                                    .server = "liar",
                                                    .session = 1,
                                                    .backend = "cpu",
                                                    .devices = LIAR_DEVICES,
                                                    .entries_max = LIMIT_RING_ENTRIES,
                                                    .arena_bytes_max = LIAR_TENSORS,
                                                    .message_bytes_max = LIMIT_MESSAGE_BYTES};

void liar_hello(struct liar *liar) {
  liar_reply(liar, &message_hello_reply_type, &liar_good_hello, NULL, 0);
}

int liar_memfd(struct liar *liar, unsigned seals) {
  int memfd = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  liar->bytes = ring_tensor_offset(LIAR_ENTRIES, LIAR_DEVICES) + LIAR_TENSORS;
  if (memfd < 0 || ftruncate(memfd, (off_t)liar->bytes) != 0)
    perror("liar: memfd");
  liar->arena = mmap(NULL, liar->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  ring_format(liar->arena, LIAR_DEVICES, LIAR_ENTRIES, liar->bytes);
  fcntl(memfd, F_ADD_SEALS, seals);
  return memfd;
}

void liar_send_arena(struct liar *liar, int memfd, const struct message_arena_reply *reply, size_t fd_count) {
  liar->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int fds[] = {memfd, liar->wakeup, liar->wakeup};
  liar_reply(liar, &message_arena_reply_type, reply, fds, fd_count);
  close(memfd);
}

struct message_arena_reply liar_good_arena(const struct liar *liar) {
  return (struct message_arena_reply){.bytes = liar->bytes, .entries = LIAR_ENTRIES, .devices = LIAR_DEVICES};
}

void liar_arena(struct liar *liar) {
  int memfd = liar_memfd(liar, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  struct message_arena_reply reply = liar_good_arena(liar);
  liar_send_arena(liar, memfd, &reply, 2);
}

/* ---- running a liar */

static void *liar_run(void *argument) {
  struct liar *liar = argument;
  liar->socket = accept4(liar->listener, NULL, NULL, SOCK_CLOEXEC);
  if (liar_request(liar) == COMMAND_hello)
    liar->hello(liar);
  if (liar_request(liar) == COMMAND_arena_create) {
    liar->arena_create(liar);
    liar->rest(liar);
  }
  liar_until_closed(liar);
  if (liar->arena != NULL)
    munmap(liar->arena, liar->bytes);
  if (liar->wakeup > 0)
    close(liar->wakeup);
  close(liar->socket);
  return NULL;
}

int liar_descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  assert_non_null(folder);
  while (readdir(folder) != NULL)
    count++;
  closedir(folder);
  return count;
}

void liar_start(struct liar *liar, void (*hello)(struct liar *), void (*arena)(struct liar *),
                void (*rest)(struct liar *)) {
  static int number;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  *liar = (struct liar){.socket = -1, .hello = hello, .arena_create = arena, .rest = rest};
  snprintf(liar->path, sizeof liar->path, "/tmp/gemmd-lies-%d-%d", (int)getpid(), number++);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", liar->path);
  liar->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(liar->listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(liar->listener, 1), 0);
  assert_int_equal(pthread_create(&liar->thread, NULL, liar_run, liar), 0);
}

void liar_join(struct liar *liar) {
  assert_int_equal(pthread_join(liar->thread, NULL), 0);
  close(liar->listener);
  unlink(liar->path);
}
