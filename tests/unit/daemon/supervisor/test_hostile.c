/* Descriptors of clients that are not what they should be: each is refused by name, or harms nobody but its owner. */
#include "daemon/supervisor/net/closing.h"
#include "proto/shm/ring.h"
#include "tests/support/daemon/daemon.h"
#include "tests/support/messages/users.h"
#include "tests/support/system/nap.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = 4, PAGE = 4096 };

static struct config config;
static pid_t supervisor;
static int peer;
static struct error failure;

/* A file system of a client's own, whose files can be opened, and never read. */
static struct stuck {
  char folder[32];
  int device;
  pid_t pid; /* serves it; 0: none */
} stuck;

static int start(void **state) {
  peer_config(&config);
  config.arena_bytes_max = 1 << 20;
  supervisor = peer_start_embedded(&config, &peer);
  peer_hello(peer);
  return 0;
}

/* Descriptors of its files can be closed from then on. */
static void stuck_unmount(void) {
  kill(stuck.pid, SIGKILL);
  waitpid(stuck.pid, NULL, 0);
  umount2(stuck.folder, MNT_DETACH);
  rmdir(stuck.folder);
  stuck.pid = 0;
}

static int stop(void **state) {
  if (stuck.pid != 0) /* a test has failed */
    stuck_unmount();
  close(peer);
  return peer_wait(supervisor);
}

/* ---- memory as arena */

static uint64_t arena_bytes(void) {
  return ring_tensor_offset(ENTRIES, 1) + 4 * PAGE;
}

static int memory(unsigned flags, uint64_t bytes, int seals) {
  int fd = memfd_create("test-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
  assert_true(fd >= 0);
  assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
  if (seals != 0)
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

static const int good_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static enum status adopt_as(int fd, uint64_t bytes, uint32_t entries) {
  const struct message_arena_request request = {.bytes = bytes, .entries = entries};
  assert_true(fd >= 0);
  return peer_ask(peer, COMMAND_arena_adopt, &request, &fd, 1, NULL, &failure);
}

/* Closes it. */
static enum status adopt(int fd) {
  enum status status = adopt_as(fd, arena_bytes(), ENTRIES);
  close(fd);
  return status;
}

static void memory_that_is_not_safe_to_map_is_refused(void **state) {
  int pair[2];
  char path[64];
  assert_int_equal(adopt(memory(0, arena_bytes(), 0)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(memory(0, arena_bytes(), F_SEAL_SHRINK)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(memory(0, arena_bytes(), F_SEAL_SHRINK | F_SEAL_GROW)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(memory(0, arena_bytes(), good_seals | F_SEAL_WRITE)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(memory(0, arena_bytes(), good_seals | F_SEAL_FUTURE_WRITE)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(memory(0, arena_bytes() - PAGE, good_seals)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(memory(0, arena_bytes() + PAGE, good_seals)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(memory(MFD_HUGETLB, 2 << 20, good_seals)), STATUS_BAD_DESCRIPTOR);
  assert_non_null(strstr(failure.text, "ordinary pages"));
  int fd = memory(0, arena_bytes(), good_seals);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  assert_int_equal(adopt(open(path, O_RDONLY)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(open(path, O_PATH)), STATUS_BAD_DESCRIPTOR);
  close(fd);
  fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600); /* tmpfs, but nothing that can be sealed */
  assert_int_equal(ftruncate(fd, (off_t)arena_bytes()), 0);
  assert_int_equal(adopt(fd), STATUS_BAD_DESCRIPTOR);
  fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
  assert_int_equal(ftruncate(fd, (off_t)arena_bytes()), 0);
  assert_int_equal(adopt(fd), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(open("/dev/zero", O_RDWR)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(adopt(open("/", O_RDONLY)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  assert_int_equal(adopt(pair[0]), STATUS_BAD_DESCRIPTOR);
  close(pair[1]);
  assert_int_equal(pipe(pair), 0);
  assert_int_equal(adopt(pair[1]), STATUS_BAD_DESCRIPTOR);
  close(pair[0]);
  peer_expect_alive(peer);
}

static void sizes_of_an_arena_of_ones_own_are_checked(void **state) {
  int fd = memory(0, arena_bytes(), good_seals);
  assert_int_equal(adopt_as(fd, arena_bytes(), 0), STATUS_INVALID);
  assert_int_equal(adopt_as(fd, arena_bytes(), 3), STATUS_INVALID);
  assert_int_equal(adopt_as(fd, arena_bytes(), 512), STATUS_INVALID);
  assert_int_equal(adopt_as(fd, arena_bytes() - 1, ENTRIES), STATUS_INVALID);
  assert_int_equal(adopt_as(fd, 0, ENTRIES), STATUS_INVALID);
  assert_int_equal(adopt_as(fd, PAGE, ENTRIES), STATUS_INVALID);
  assert_int_equal(adopt_as(fd, (uint64_t)1 << 45, ENTRIES), STATUS_TOO_LARGE);
  assert_int_equal(adopt_as(fd, UINT64_MAX - PAGE + 1, ENTRIES), STATUS_TOO_LARGE);
  assert_int_equal(adopt_as(fd, arena_bytes(), ENTRIES), STATUS_OK);
  assert_int_equal(adopt_as(fd, arena_bytes(), ENTRIES), STATUS_WRONG_STATE);
  close(fd);
  peer_expect_alive(peer);
}

static void rings_are_made_anew_and_tensors_stay(void **state) {
  int fd = memory(0, arena_bytes(), good_seals);
  uint8_t *base = mmap(NULL, arena_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(base, MAP_FAILED);
  memset(base, 0xab, arena_bytes());
  assert_int_equal(adopt_as(fd, arena_bytes(), ENTRIES), STATUS_OK);
  const struct ring_header *header = (const void *)base;
  assert_int_equal(ring_header_check(header, arena_bytes(), &failure), STATUS_OK);
  struct ring_client ring;
  ring_client_init(&ring, base, ENTRIES, 0);
  assert_false(ring_client_ready(&ring));
  assert_int_equal(ring_client_worker_state(&ring), RING_WORKER_READY);
  for (uint64_t i = header->tensor_offset; i < arena_bytes(); i++)
    assert_int_equal(base[i], 0xab);
  munmap(base, arena_bytes());
  close(fd);
}

/* ---- holes */

/* Punches the whole arena, rings and all, while the worker serves it. The daemon looks elsewhere afterwards. */
static void holes_in_an_arena_harm_nobody_else(void **state) {
  enum { ROUNDS = 300 };
  struct message_queue_open queue = {.device = 0};
  struct ring_client ring;
  static struct peer_reply reply;
  int fd = memory(0, arena_bytes(), good_seals);
  uint8_t *base = mmap(NULL, arena_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(base, MAP_FAILED);
  assert_int_equal(adopt_as(fd, arena_bytes(), ENTRIES), STATUS_OK);
  peer_send(peer, 9, COMMAND_queue_open, &message_queue_open_type, &queue, NULL, 0);
  peer_receive(peer, 9, NULL, NULL, &reply);
  assert_int_equal(reply.packet.fd_count, 1);
  ring_client_init(&ring, base, ENTRIES, 0);
  for (int i = 0; i < ROUNDS; i++) {
    const struct ring_submission submission = {.tag = (uint64_t)i, .opcode = RING_OP_PRODUCT, .m = 1, .n = 1, .k = 1};
    uint64_t one = 1;
    bool wake;
    (void)ring_client_submit(&ring, &submission, &wake);
    assert_int_equal(write(reply.packet.fds[0], &one, sizeof one), sizeof one);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)arena_bytes()), 0);
  }
  packet_close(&reply.packet);
  munmap(base, arena_bytes());
  close(fd);
  /* The session may have been cut off for its rings; the daemon that served it alone then ends in order: see stop(). */
}

/* ---- memory of one's own */

static void a_handle_that_was_given_back_stands_for_nothing(void **state) {
  const struct message_tensor_open request = {.device = 0, .bytes = PAGE};
  struct message_tensor_handle first, second;
  int fd = memory(0, PAGE, F_SEAL_SHRINK);
  peer_arena(peer, ENTRIES);
  assert_int_equal(peer_ask(peer, COMMAND_tensor_open, &request, &fd, 1, &first, &failure), STATUS_OK);
  assert_int_equal(peer_ask(peer, COMMAND_tensor_close, &first, NULL, 0, NULL, &failure), STATUS_OK);
  assert_int_equal(peer_ask(peer, COMMAND_tensor_open, &request, &fd, 1, &second, &failure), STATUS_OK);
  assert_int_not_equal(first.handle, second.handle);
  assert_int_equal(peer_ask(peer, COMMAND_tensor_close, &first, NULL, 0, NULL, &failure), STATUS_NOT_FOUND);
  assert_int_equal(peer_ask(peer, COMMAND_tensor_close, &second, NULL, 0, NULL, &failure), STATUS_OK);
  close(fd);
}

/* ---- files of weights */

static enum status load_from(int fd) {
  struct message_weight_load request = peer_load("w");
  assert_true(fd >= 0);
  enum status status = peer_ask(peer, COMMAND_weight_load, &request, &fd, 1, NULL, &failure);
  close(fd);
  return status;
}

static void files_that_are_none_are_not_loaded(void **state) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  assert_int_equal(load_from(pair[0]), STATUS_BAD_DESCRIPTOR);
  close(pair[1]);
  int huge = memory(MFD_HUGETLB, 2 << 20, 0); /* a hole in it reads as zeros, and takes no page */
  assert_int_equal(load_from(huge), STATUS_BAD_FILE);
  assert_int_equal(load_from(open("/dev/null", O_RDONLY)), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(load_from(memfd_create("empty", 0)), STATUS_BAD_FILE);
  peer_expect_alive(peer);
}

static void answer(int device, const struct fuse_in_header *question, const void *body, size_t bytes) {
  char reply[256];
  struct fuse_out_header head = {.len = (uint32_t)(sizeof head + bytes), .unique = question->unique};
  memcpy(reply, &head, sizeof head);
  memcpy(reply + sizeof head, body, bytes);
  if (write(device, reply, head.len) < 0)
    _exit(1);
}

static void serve_stuck(int device) {
  static char question[1 << 17] __attribute__((aligned(8)));
  const struct fuse_in_header *head = (const void *)question;
  const struct fuse_attr file = {.ino = 2, .size = 1 << 20, .mode = S_IFREG | 0444, .nlink = 1};
  const struct fuse_attr folder = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 1};
  while (read(device, question, sizeof question) > 0) {
    struct fuse_init_out init = {.major = 7, .minor = 31, .max_readahead = 65536, .max_write = 65536};
    struct fuse_entry_out entry = {.nodeid = 2, .entry_valid = 100, .attr_valid = 100, .attr = file};
    struct fuse_attr_out attributes = {.attr_valid = 100, .attr = head->nodeid == 1 ? folder : file};
    struct fuse_open_out open = {.open_flags = FOPEN_DIRECT_IO};
    if (head->opcode == FUSE_INIT)
      answer(device, head, &init, sizeof init);
    else if (head->opcode == FUSE_LOOKUP)
      answer(device, head, &entry, sizeof entry);
    else if (head->opcode == FUSE_GETATTR)
      answer(device, head, &attributes, sizeof attributes);
    else if (head->opcode == FUSE_OPEN || head->opcode == FUSE_OPENDIR)
      answer(device, head, &open, sizeof open);
  }
  _exit(0);
}

static bool stuck_mount(void) {
  char options[128];
  stuck = (struct stuck){.folder = "/tmp/gemmd-test-fuse-XXXXXX", .device = open("/dev/fuse", O_RDWR | O_CLOEXEC)};
  if (stuck.device < 0 || mkdtemp(stuck.folder) == NULL)
    return false;
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=65534,group_id=0,allow_other", stuck.device);
  if (mount("stuck", stuck.folder, "fuse.stuck", MS_NOSUID | MS_NODEV, options) != 0) {
    close(stuck.device);
    rmdir(stuck.folder);
    return false;
  }
  stuck.pid = fork();
  assert_true(stuck.pid >= 0);
  if (stuck.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* who reads from it could never be ended */
    serve_stuck(stuck.device);
  }
  close(stuck.device);
  return true;
}

static int stuck_file(void) {
  char path[64];
  snprintf(path, sizeof path, "%s/weights", stuck.folder);
  return open(path, O_RDONLY | O_CLOEXEC);
}

/* The file of a file system that answers nothing but its name. Skips the test where none can be mounted. */
static int stuck_open(void) {
  if (!stuck_mount())
    skip(); /* takes root and /dev/fuse */
  int file = stuck_file();
  assert_true(file >= 0);
  return file;
}

/* To read it, to ask how large it is, or to close it would wait for the client, and not even SIGKILL would end that. */
static void a_file_that_a_user_serves_is_not_touched(void **state) {
  int file = stuck_open(), good = peer_file(64, 64, 1);
  struct message_weight_load request = peer_load("stuck"), other = peer_load("w");
  for (int i = 0; i < 4; i++) {
    assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, NULL, &failure), STATUS_BAD_DESCRIPTOR);
    assert_non_null(strstr(failure.text, "FUSE"));
  }
  const struct message_arena_request arena = {.bytes = arena_bytes(), .entries = ENTRIES};
  assert_int_equal(peer_ask(peer, COMMAND_arena_adopt, &arena, &file, 1, NULL, &failure), STATUS_BAD_DESCRIPTOR);
  assert_int_equal(peer_ask(peer, COMMAND_weight_load, &other, &good, 1, NULL, &failure),
                   STATUS_OK); /* starts a child */
  peer_expect_alive(peer);
  stuck_unmount();
  close(file); /* would not have returned before */
  close(good);
}

/* Each is a thread of gemmd's that may never end: at some point no more are taken. */
enum { MOST = 256 };

static void descriptors_that_cannot_be_closed_are_so_many(void **state) {
  static struct peer_reply reply;
  int file = stuck_open(), good = peer_file(64, 64, 1);
  struct message_weight_load request = peer_load("stuck"), other = peer_load("w");
  for (int i = 0; i < MOST; i++)
    assert_int_equal(peer_ask(peer, COMMAND_weight_load, &request, &file, 1, NULL, &failure), STATUS_BAD_DESCRIPTOR);
  peer_expect_alive(peer);
  peer_send(peer, 7, COMMAND_weight_load, &message_weight_load_type, &other, &good, 1);
  peer_receive(peer, 7, NULL, NULL, &reply);
  assert_int_equal(reply.status, STATUS_PROTOCOL);
  assert_non_null(strstr(reply.error.text, "cannot be closed"));
  peer_expect_end(peer);
  stuck_unmount();
  close(file);
  close(good);
}

static int stopped[2];

/* This process ends when its descriptor of that file can be closed. */
static void alice_has_too_many(void) {
  struct message_weight_load request = peer_load("stuck");
  int first = peer_connect(&life.config), second = peer_connect(&life.config), file = stuck_file();
  EXPECT(users_greet(first) == STATUS_OK && users_greet(second) == STATUS_OK && file >= 0);
  for (int i = 0; i < MOST; i++)
    EXPECT(peer_ask(i % 2 ? first : second, COMMAND_weight_load, &request, &file, 1, NULL, &life.failure) ==
           STATUS_BAD_DESCRIPTOR);
  EXPECT(users_load(first, "a", 1, MODE_DEFAULT, NULL) == STATUS_PROTOCOL);
  EXPECT(write(stopped[1], "", 1) == 1);
}

static void bob_loads(void) {
  peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(users_load(peer, "b", 1, MODE_DEFAULT, NULL) == STATUS_OK);
}

static void a_users_descriptors_cost_others_nothing(void **state) {
  char byte;
  if (!stuck_mount())
    skip();
  life_begin();
  assert_int_equal(pipe(stopped), 0);
  pid_t alice = users_start(USERS_ALICE, USERS_USE, alice_has_too_many);
  close(stopped[1]);
  assert_int_equal(read(stopped[0], &byte, 1), 1);
  close(stopped[0]);
  users_play(USERS_BOB, USERS_USE, bob_loads);
  stuck_unmount();
  assert_int_equal(peer_wait(alice), 0);
  life_end();
}

/* This process, too, ends when its descriptor can be closed. */
static void load_stuck(void) {
  struct message_weight_load request = peer_load("stuck");
  int client = peer_connect(&config), file = stuck_file();
  EXPECT(users_greet(client) == STATUS_OK && file >= 0);
  EXPECT(users_load(client, "w", 1, MODE_DEFAULT, NULL) == STATUS_OK);
  EXPECT(peer_ask(client, COMMAND_weight_load, &request, &file, 1, NULL, &life.failure) == STATUS_BAD_DESCRIPTOR);
  EXPECT(write(stopped[1], "", 1) == 1);
}

static struct message_status_reply ask_status(void) {
  static struct message_status_reply reply;
  const struct message_empty nothing = {.reserved = 0};
  peer = peer_connect(&config);
  assert_int_equal(users_greet(peer), STATUS_OK);
  assert_int_equal(peer_ask(peer, COMMAND_status, &nothing, NULL, 0, &reply, &failure), STATUS_OK);
  close(peer);
  return reply;
}

/* The process that gemmd was cannot execute anything while a thread of it hangs; nor can it be reaped. */
static void a_descriptor_that_cannot_be_closed_holds_up_no_upgrade(void **state) {
  struct daemon daemon;
  char byte;
  if (!stuck_mount())
    skip();
  daemon_make(&daemon, "");
  daemon_start(&daemon);
  peer_config(&config);
  snprintf(config.socket, sizeof config.socket, "%s", daemon.socket);
  assert_int_equal(pipe(stopped), 0);
  pid_t client = users_start(0, 0, load_stuck);
  close(stopped[1]);
  assert_int_equal(read(stopped[0], &byte, 1), 1);
  close(stopped[0]);
  assert_int_equal(ask_status().pid, daemon.pid);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  daemon_upgrade(&daemon);
  struct message_status_reply status = ask_status();
  assert_int_not_equal(status.pid, daemon.pid);
  assert_int_equal(status.weights, 1);
  stuck_unmount();
  assert_int_equal(peer_wait(client), 0);
  assert_int_equal(peer_wait(daemon.pid), 0);
  daemon.pid = (pid_t)status.pid;
  daemon_end(&daemon);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* Freeing it takes a thread of its own; what is small is freed at once. */
static void large_memory_is_closed_in_the_end(void **state) {
  int small = memory(0, PAGE, 0), large = memory(0, (uint64_t)64 << 20, 0);
  closing_memory(small);
  assert_int_equal(fcntl(small, F_GETFD), -1);
  closing_memory(large);
  closing_settle(); /* from here on a child does not inherit it */
  assert_int_equal(closing_pending(), 0);
  while (fcntl(large, F_GETFD) >= 0)
    nap_shortly();
}

/* ---- overlays, below which may lie what a user serves */

static bool say(const char *path, const char *format, unsigned id) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool said = fd >= 0 && dprintf(fd, format, id) > 0;
  close(fd);
  return said;
}

/* Becomes root of namespaces of its own, as any user may; root does without one of users. */
static bool leave_namespaces(void) {
  uid_t uid = geteuid();
  gid_t gid = getegid();
  prctl(PR_SET_DUMPABLE, 1); /* so that /proc/self is its own */
  if (unshare(CLONE_NEWNS | (uid != 0 ? CLONE_NEWUSER : 0)) != 0)
    return false;
  if (uid != 0 && (!say("/proc/self/setgroups", "deny", 0) || !say("/proc/self/uid_map", "0 %u 1", uid) ||
                   !say("/proc/self/gid_map", "0 %u 1", gid)))
    return false;
  return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* A file on an overlay over the test's folder, in a namespace of this process. -1 where the kernel does not let users
 * make one. */
static int overlay_file(void) {
  char options[128], path[64];
  if (!leave_namespaces() || mount("t", life.folder, "tmpfs", 0, NULL) != 0)
    return -1;
  const char *const folders[] = {"a", "b", "o"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    snprintf(path, sizeof path, "%s/%s", life.folder, folders[i]);
    EXPECT(mkdir(path, 0755) == 0);
  }
  snprintf(path, sizeof path, "%s/a/w", life.folder);
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644), numbers = peer_file(64, 64, 1);
  EXPECT(file >= 0 && sendfile(file, numbers, &(off_t){0}, 1 << 20) > 64 * 64 * 4);
  close(file);
  snprintf(options, sizeof options, "lowerdir=%s/a:%s/b", life.folder, life.folder);
  snprintf(path, sizeof path, "%s/o", life.folder);
  if (mount("o", path, "overlay", 0, options) != 0)
    return -1;
  snprintf(path, sizeof path, "%s/o/w", life.folder);
  return open(path, O_RDONLY | O_CLOEXEC);
}

/* Root alone is taken at its word. */
static void load_from_overlay(void) {
  struct message_weight_load request = peer_load("w");
  bool root = geteuid() == 0;
  peer = peer_connect(&life.config);
  int file = overlay_file();
  EXPECT(users_greet(peer) == STATUS_OK);
  if (file < 0)
    return;
  enum status status = peer_ask(peer, COMMAND_weight_load, &request, &file, 1, NULL, &life.failure);
  EXPECT(status == (root ? STATUS_OK : STATUS_BAD_DESCRIPTOR));
  EXPECT(status == STATUS_OK || strstr(life.failure.text, "overlay") != NULL);
}

static void an_overlay_of_a_user_is_not_read(void **state) {
  if (geteuid() != 0)
    skip();
  life_begin();
  users_play(USERS_ALICE, USERS_USE, load_from_overlay);
  users_play(0, 0, load_from_overlay);
  life_end();
}

#define USERS(test) cmocka_unit_test_setup_teardown(test, users_configure, life_clean)
#define HOSTILE(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(int count, char **words) {
  peer_main(count, words);
  const struct CMUnitTest tests[] = {
      HOSTILE(memory_that_is_not_safe_to_map_is_refused),
      HOSTILE(sizes_of_an_arena_of_ones_own_are_checked),
      HOSTILE(rings_are_made_anew_and_tensors_stay),
      HOSTILE(holes_in_an_arena_harm_nobody_else),
      HOSTILE(a_handle_that_was_given_back_stands_for_nothing),
      HOSTILE(files_that_are_none_are_not_loaded),
      HOSTILE(a_file_that_a_user_serves_is_not_touched),
      HOSTILE(descriptors_that_cannot_be_closed_are_so_many),
      cmocka_unit_test(a_descriptor_that_cannot_be_closed_holds_up_no_upgrade),
      cmocka_unit_test(large_memory_is_closed_in_the_end),
      USERS(a_users_descriptors_cost_others_nothing),
      USERS(an_overlay_of_a_user_is_not_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
