/* Borrowing by bare messages from a supervisor with real workers: who may, what comes with it, and what never lies
 * there. Other users are played by processes of this test, which takes root. */
#include "daemon/loader/load.h"
#include "daemon/supervisor/weights/catalog.h"
#include "kernels/backend.h"
#include "kernels/cpu/weight/weight.h"
#include "tests/support/messages/users.h"
#include "tests/support/system/nap.h"
#include "tests/support/worker/loading.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 300, K = 200 }; /* of life_load */

static struct message_weight_borrowed borrowed;
static int fds[LIMIT_MESSAGE_FDS];
static size_t fd_count;

/* The reply is in `borrowed`, with the descriptors that came. */
static enum status borrow_with(int peer, const struct message_weight_borrow *request) {
  static struct peer_reply reply;
  static uint32_t id = 50000;
  peer_send(peer, ++id, COMMAND_weight_borrow, &message_weight_borrow_type, request, NULL, 0);
  peer_receive(peer, id, &message_weight_borrowed_type, &borrowed, &reply);
  life.failure = reply.error;
  fd_count = reply.packet.fd_count;
  for (size_t i = 0; i < fd_count; i++)
    fds[i] = packet_take_fd(&reply.packet, i);
  return reply.status;
}

static enum status borrow(int peer, const char *name) {
  struct message_weight_borrow request = {.name = ""};
  snprintf(request.name, sizeof request.name, "%s", name);
  return borrow_with(peer, &request);
}

static enum status give_back(int peer, uint32_t number) {
  const struct message_weight_return request = {.borrow = number};
  return peer_ask(peer, COMMAND_weight_return, &request, NULL, 0, NULL, &life.failure);
}

static uint32_t borrows_of(int peer, const char *name) {
  static struct message_weight_info info;
  assert_int_equal(life_ask_name(peer, COMMAND_weight_info, name, &info), STATUS_OK);
  return info.borrows;
}

/* The end of a session is noticed later than the test's own next request may be answered. */
static void await_borrows(int peer, const char *name, uint32_t count) {
  while (borrows_of(peer, name) != count)
    nap_shortly();
}

static void load(int peer, const char *name, uint32_t seed) {
  if (life_load(peer, name, seed, false, NULL) != STATUS_OK)
    fail_msg("%s: %s", name, life.failure.text);
}

static const uint8_t *map(int fd) {
  const uint8_t *base = mmap(NULL, borrowed.parts[0].slab_bytes, PROT_READ, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(base, MAP_FAILED);
  return base;
}

static void unmap(const uint8_t *base) {
  munmap((void *)(uintptr_t)base, borrowed.parts[0].slab_bytes);
}

/* A supervisor and a connection, for whoever this test is. */
static int begin(void) {
  life_begin();
  return life_client();
}

static void end(int peer) {
  close(peer);
  life_end();
}

/* ---- what comes */

/* Codes as the loader makes them of the same file. */
static void expect_codes(struct backend_weight *weight, uint32_t seed) {
  int file = peer_file(N, K, seed);
  const struct message_weight_load request = loading_request(GEMM_FORMAT_INT8, GEMM_SCALE_ROW);
  struct loaded loaded = loading_run(file, &request, 1);
  for (int64_t n = 0; n < N; n++) {
    const int8_t *row = (const int8_t *)loading_row(&loaded, n);
    assert_true(cpu_weight_scale(weight, n, 0) == (double)loading_scale(&loaded, n));
    for (int64_t k = 0; k < K; k++)
      assert_int_equal((int)cpu_weight_code(weight, n, k), row[k]);
  }
  loading_free(&loaded);
  close(file);
}

static void what_is_borrowed_is_what_was_loaded(void **state) {
  extern const struct backend_ops cpu_backend;
  const struct backend_config config = {.threads = 1, .in_flight = 1};
  const struct gemm_weight shape = {N, K, GEMM_FORMAT_INT8, GEMM_SCALE_ROW, 0, 0};
  struct backend *backend;
  struct backend_slab *slab;
  struct backend_weight *weight;
  uint64_t checksum;
  struct error error;
  int peer = begin();
  load(peer, "first", 1);
  load(peer, "second", 2);
  assert_int_equal(borrow(peer, "second"), STATUS_OK);
  assert_int_equal(fd_count, 1);
  assert_int_equal(borrowed.n, N);
  assert_int_equal(borrowed.k, K);
  assert_int_equal(borrowed.slabs_count, 1);
  assert_true(borrowed.slabs[0].fresh && borrowed.borrow != 0 && !borrowed.more && borrowed.epoch != 0);
  const struct message_borrowed_part part = borrowed.parts[0];
  assert_int_equal(part.n_count, N);
  for (size_t i = 0; i < sizeof part.device_uuid; i++)
    assert_int_equal(part.device_uuid[i], 0);
  assert_int_equal(cpu_backend.open(&config, &backend, &error), STATUS_OK);
  assert_int_equal(cpu_backend.slab_import(backend, fds[0], part.slab_bytes, &slab, &error), STATUS_OK);
  assert_int_equal(cpu_backend.weight_attach(backend, &shape, part.layout, slab, part.offset, &weight, &error),
                   STATUS_OK);
  expect_codes(weight, 2);
  assert_int_equal(cpu_backend.weight_checksum(backend, weight, &checksum, &error), STATUS_OK);
  assert_true(checksum == part.checksum);
  cpu_backend.weight_detach(backend, weight);
  cpu_backend.slab_close(backend, slab);
  cpu_backend.close(backend);
  close(fds[0]);
  end(peer);
}

static void a_slab_comes_once_a_session(void **state) {
  struct message_weight_borrow again = {.name = "first", .lost_count = 2};
  int peer = begin(), other = life_client();
  load(peer, "first", 1);
  load(peer, "second", 2);
  assert_int_equal(borrow(peer, "first"), STATUS_OK);
  assert_int_equal(fd_count, 1);
  close(fds[0]);
  uint32_t slab = borrowed.parts[0].slab;
  assert_int_equal(borrow(peer, "second"), STATUS_OK);
  assert_int_equal(fd_count, 0);
  assert_int_equal(borrowed.parts[0].slab, slab);
  assert_false(borrowed.slabs[0].fresh);
  assert_int_equal(borrow(other, "second"), STATUS_OK);
  assert_int_equal(fd_count, 1);
  close(fds[0]);
  again.lost[0].slab = slab;
  again.lost[1].slab = 4711; /* never heard of */
  assert_int_equal(borrow_with(peer, &again), STATUS_OK);
  assert_int_equal(fd_count, 1);
  close(fds[0]);
  close(other);
  end(peer);
}

static void a_borrower_cannot_write(void **state) {
  int peer = begin();
  load(peer, "w", 1);
  assert_int_equal(borrow(peer, "w"), STATUS_OK);
  assert_int_equal(fcntl(fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
  assert_ptr_equal(mmap(NULL, borrowed.parts[0].slab_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0), MAP_FAILED);
  assert_int_equal(errno, EACCES);
  const uint8_t *base = map(fds[0]);
  assert_int_equal(mprotect((void *)(uintptr_t)base, 4096, PROT_READ | PROT_WRITE), -1);
  unmap(base);
  close(fds[0]);
  end(peer);
}

/* ---- who may */

static void is_refused(void) {
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(borrow(peer, "public") == STATUS_PERMISSION);
  EXPECT(strstr(life.failure.text, "option direct") != NULL);
  const struct message_weight_hold hold = {.name = "public"};
  EXPECT(peer_ask(peer, COMMAND_weight_hold, &hold, NULL, 0, NULL, &life.failure) == STATUS_PERMISSION);
  EXPECT(give_back(peer, 1) == STATUS_NOT_FOUND);
  const struct message_empty nothing = {.reserved = 0};
  EXPECT(peer_ask(peer, COMMAND_shapes_open, &nothing, NULL, 0, NULL, &life.failure) == STATUS_PERMISSION);
  close(peer);
}

/* As a member of the group, who could open its memory for writing by another way if that were left open. */
static void is_lent_to(void) {
  char path[64];
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(borrow(peer, "public") == STATUS_OK);
  EXPECT(fd_count == 1);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fds[0]);
  EXPECT(open(path, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
  EXPECT(fchmod(fds[0], 0600) != 0);
  EXPECT(borrow(peer, "private") == STATUS_PERMISSION); /* the right is not one to others' weights */
  close(peer);
}

static void load_public_and_private(int peer) {
  struct message_weight_info info;
  assert_int_equal(users_load(peer, "public", 1, MODE_ALL, &info), STATUS_OK);
  assert_int_equal(users_load(peer, "private", 2, MODE_PRIVATE, &info), STATUS_OK);
}

static void nobody_but_gemmds_own_user_may(void **state) {
  if (geteuid() != 0)
    skip();
  int peer = begin();
  load_public_and_private(peer);
  users_play(USERS_ALICE, USERS_USE, is_refused);
  users_play(USERS_ALICE, USERS_ADMIN, is_refused);
  assert_int_equal(borrow(peer, "private"), STATUS_OK);
  close(fds[0]);
  end(peer);
}

static void members_of_the_group_may(void **state) {
  if (geteuid() != 0)
    skip();
  snprintf(life.config.direct, sizeof life.config.direct, "%d", USERS_OTHER);
  life.config.use_group[0] = '\0';
  int peer = begin();
  load_public_and_private(peer);
  users_play(USERS_ALICE, USERS_USE, is_refused);
  users_play(USERS_BOB, USERS_OTHER, is_lent_to);
  end(peer);
}

/* ---- what lies beside it */

static void alice_loads(void) {
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(users_load(peer, "hers", 1, MODE_DEFAULT, NULL) == STATUS_OK);
  close(peer);
}

static void bob_loads(void) {
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(users_load(peer, "his", 2, MODE_DEFAULT, NULL) == STATUS_OK);
  EXPECT(users_load(peer, "the same", 1, MODE_DEFAULT, NULL) == STATUS_OK);
  close(peer);
}

static void bob_shares_with_himself(void) {
  static struct message_weight_info info;
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(users_load(peer, "the same again", 1, MODE_DEFAULT, &info) == STATUS_OK);
  EXPECT(info.shared); /* where it was before */
  EXPECT(life_ask_name(peer, COMMAND_weight_unload, "the same", NULL) == STATUS_OK);
  EXPECT(life_ask_name(peer, COMMAND_weight_unload, "the same again", NULL) == STATUS_OK);
  close(peer);
}

static void bob_loads_anew(void) {
  static struct message_weight_info info;
  int peer = peer_connect(&life.config);
  EXPECT(users_greet(peer) == STATUS_OK);
  EXPECT(users_load(peer, "the same", 1, MODE_DEFAULT, &info) == STATUS_OK);
  EXPECT(!info.shared); /* though hers is the same: that is lent */
  close(peer);
}

static bool is_zero(const uint8_t *bytes, uint64_t count) {
  uint64_t i = 0;
  while (i < count && bytes[i] == 0)
    i++;
  return i == count;
}

/* With nobody's right but gemmd's own, weights of several users share slabs. */
static void a_weight_among_others_is_moved(void **state) {
  static struct message_weight_info info;
  if (geteuid() != 0)
    skip();
  int peer = begin();
  peer_arena(peer, 1);
  users_play(USERS_ALICE, USERS_USE, alice_loads);
  users_play(USERS_BOB, USERS_USE, bob_loads);
  uint64_t slabs = life_status(peer)->devices[0].memory_slabs;
  assert_int_equal(life.status.weights, 2);
  static struct message_weight_info handle;
  assert_int_equal(life_ask_name(peer, COMMAND_weight_open, "hers", &handle), STATUS_OK);
  assert_int_equal(borrow(peer, "hers"), STATUS_OK);
  const struct message_borrowed_part part = borrowed.parts[0];
  const uint8_t *base = map(fds[0]);
  assert_true(is_zero(base, part.offset));
  assert_false(is_zero(base + part.offset, part.bytes));
  assert_true(is_zero(base + part.offset + part.bytes, part.slab_bytes - part.offset - part.bytes));
  assert_int_equal(life_status(peer)->weights, 3); /* the old one stands for his name */
  assert_int_equal(life.status.devices[0].memory_slabs, 2 * slabs);
  assert_int_equal(life.status.devices[0].memory_lent, part.slab_bytes);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_info, "hers", &info), STATUS_OK);
  assert_int_equal(info.owner, USERS_ALICE);
  assert_int_equal(info.references, 1);
  assert_int_equal(info.borrows, 1);
  assert_int_equal(info.borrowers_count, 1);
  assert_int_equal(info.borrowers[0].pid, getpid());
  users_play(USERS_BOB, USERS_USE, bob_shares_with_himself);
  assert_int_equal(life_status(peer)->weights, 3); /* the old one has a handle */
  const struct message_weight_close closing = {.parts_count = 1, .parts = {handle.parts[0]}};
  assert_int_equal(peer_ask(peer, COMMAND_weight_close, &closing, NULL, 0, NULL, &life.failure), STATUS_OK);
  assert_int_equal(life_status(peer)->weights, 2);
  users_play(USERS_BOB, USERS_USE, bob_loads_anew);
  assert_true(is_zero(base, part.offset));
  assert_true(is_zero(base + part.offset + part.bytes, part.slab_bytes - part.offset - part.bytes));
  uint32_t slab = part.slab;
  assert_int_equal(borrow(peer, "hers"), STATUS_OK); /* where it is now */
  assert_int_equal(fd_count, 0);
  assert_int_equal(borrowed.parts[0].slab, slab);
  unmap(base);
  end(peer);
}

/* More than are listed. */
static void the_first_sixteen_borrowers_are_listed(void **state) {
  static struct message_weight_info info;
  enum { BORROWERS = 17, LISTED = 16 };
  int peers[BORROWERS];
  peers[0] = begin();
  load(peers[0], "w", 1);
  for (int i = 0; i < BORROWERS; i++) {
    peers[i] = i == 0 ? peers[0] : life_client();
    assert_int_equal(borrow(peers[i], "w"), STATUS_OK);
    close(fds[0]);
  }
  assert_int_equal(life_ask_name(peers[0], COMMAND_weight_info, "w", &info), STATUS_OK);
  assert_int_equal(info.borrows, BORROWERS);
  assert_int_equal(info.borrowers_count, LISTED);
  for (int i = 0; i < LISTED; i++)
    assert_int_equal(info.borrowers[i].pid, getpid());
  for (int i = 1; i < BORROWERS; i++)
    close(peers[i]);
  end(peers[0]);
}

/* ---- what becomes of it */

static void no_range_of_what_is_lent_is_used_again(void **state) {
  static struct message_weight_unload_reply unloaded;
  int peer = begin(), other = life_client();
  load(peer, "first", 1);
  load(peer, "second", 2);
  assert_int_equal(borrow(other, "first"), STATUS_OK);
  const struct message_borrowed_part part = borrowed.parts[0];
  const uint8_t *base = map(fds[0]);
  uint8_t *before = malloc(part.bytes);
  assert_non_null(before);
  memcpy(before, base + part.offset, part.bytes);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "first", &unloaded), STATUS_OK);
  assert_int_equal(unloaded.freed, 0);
  assert_int_equal(give_back(other, borrowed.borrow), STATUS_OK); /* and keeps it mapped */
  for (uint32_t i = 0; i < 10; i++) {
    char name[16];
    snprintf(name, sizeof name, "more %u", i);
    load(peer, name, i + 10);
    assert_int_equal(borrow(peer, name), STATUS_OK);
    assert_true(borrowed.parts[0].slab != part.slab || borrowed.parts[0].offset >= part.offset + 2 * part.bytes);
    while (fd_count > 0)
      close(fds[--fd_count]);
  }
  assert_memory_equal(base + part.offset, before, part.bytes);
  unmap(base);
  free(before);
  close(other);
  end(peer);
}

static void memory_goes_with_the_last_borrow(void **state) {
  int peer = begin(), other = life_client(), third = life_client();
  load(peer, "w", 1);
  assert_int_equal(borrow(other, "w"), STATUS_OK);
  close(fds[0]);
  assert_int_equal(borrow(third, "w"), STATUS_OK);
  close(fds[0]);
  uint32_t number = borrowed.borrow;
  assert_int_equal(borrows_of(peer, "w"), 2);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "w", NULL), STATUS_OK);
  assert_true(life_status(peer)->devices[0].memory_lent > 0);
  assert_int_equal(give_back(third, number), STATUS_OK);
  assert_int_equal(give_back(third, number), STATUS_NOT_FOUND);
  assert_true(life_status(peer)->devices[0].memory_slabs > 0);
  close(other); /* the other way to give it back */
  while (life_status(peer)->devices[0].memory_slabs > 0)
    nap_shortly();
  assert_int_equal(life.status.devices[0].memory_lent, 0);
  close(third);
  end(peer);
}

static void dies_with_it(void) {
  int peer = life_client();
  EXPECT(borrow(peer, "w") == STATUS_OK);
  raise(SIGKILL);
}

static void a_session_gives_back_what_it_had_however_it_ends(void **state) {
  int peer = begin(), nonsense = life_client();
  load(peer, "w", 1);
  assert_int_equal(borrow(nonsense, "w"), STATUS_OK);
  close(fds[0]);
  assert_int_equal(borrows_of(peer, "w"), 1);
  assert_int_equal(write(nonsense, "nonsense", 8), 8);
  peer_expect_end(nonsense);
  await_borrows(peer, "w", 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    dies_with_it();
    _exit(1);
  }
  assert_int_equal(peer_wait(pid), 128 + SIGKILL);
  await_borrows(peer, "w", 0);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_unload, "w", NULL), STATUS_OK);
  assert_int_equal(life_status(peer)->devices[0].memory_slabs, 0);
  close(nonsense);
  end(peer);
}

/* ---- holding on */

static struct message_weight_held hold(int peer, const struct message_weight_hold *request) {
  static struct message_weight_held reply;
  assert_int_equal(peer_ask(peer, COMMAND_weight_hold, request, NULL, 0, &reply, &life.failure), STATUS_OK);
  assert_true(reply.same ? reply.borrow != 0 && reply.why[0] == '\0' : reply.borrow == 0 && reply.why[0] != '\0');
  return reply;
}

static void who_holds_on_is_told_whether_it_is_the_same(void **state) {
  int peer = begin();
  load(peer, "w", 1);
  load(peer, "other", 2);
  assert_int_equal(borrow(peer, "w"), STATUS_OK);
  close(fds[0]);
  struct message_weight_hold request = {
      .name = "w",
      .epoch = borrowed.epoch,
      .parts_count = 1,
      .parts = {{.slab = borrowed.parts[0].slab, .offset = borrowed.parts[0].offset}}};
  memcpy(request.hash, borrowed.hash, sizeof request.hash);
  int next = life_client();
  assert_true(hold(next, &request).same);
  assert_int_equal(borrows_of(peer, "w"), 2);
  assert_int_equal(borrow(next, "w"), STATUS_OK);
  assert_int_equal(fd_count, 0); /* it has the slab */
  struct message_weight_hold wrong = request;
  wrong.epoch++;
  assert_non_null(strstr(hold(next, &wrong).why, "without the memory"));
  wrong = request;
  wrong.hash[0]++;
  assert_non_null(strstr(hold(next, &wrong).why, "other content"));
  wrong = request;
  wrong.parts[0].offset++;
  assert_non_null(strstr(hold(next, &wrong).why, "lies elsewhere"));
  wrong = request;
  wrong.parts_count = 2;
  assert_non_null(strstr(hold(next, &wrong).why, "lies elsewhere"));
  snprintf(request.name, sizeof request.name, "nothing");
  assert_non_null(strstr(hold(next, &request).why, "no weight of that name"));
  assert_int_equal(borrows_of(peer, "w"), 3);
  close(next);
  await_borrows(peer, "w", 1);
  end(peer);
}

/* ---- damage */

/* The supervisor's own descriptor of the slab, written through. */
static void plant(uint32_t inode, uint64_t offset) {
  char folder[64], path[360];
  struct stat stat_of;
  snprintf(folder, sizeof folder, "/proc/%d/fd", (int)life.supervisor);
  DIR *list = opendir(folder);
  assert_non_null(list);
  int found = -1;
  for (struct dirent *entry; found < 0 && (entry = readdir(list)) != NULL;) {
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (stat(path, &stat_of) == 0 && S_ISREG(stat_of.st_mode) && (uint32_t)stat_of.st_ino == inode)
      found = open(path, O_RDWR | O_CLOEXEC);
  }
  closedir(list);
  assert_true(found >= 0);
  uint8_t byte;
  assert_int_equal(pread(found, &byte, 1, (off_t)offset), 1);
  byte ^= 1;
  assert_int_equal(pwrite(found, &byte, 1, (off_t)offset), 1);
  close(found);
}

static void a_write_is_found_at_the_return(void **state) {
  struct stat stat_of;
  if (geteuid() != 0)
    skip(); /* the file's mode keeps everybody else from it */
  int peer = begin();
  load(peer, "w", 1);
  load(peer, "sound", 2);
  assert_int_equal(borrow(peer, "sound"), STATUS_OK);
  close(fds[0]);
  assert_int_equal(give_back(peer, borrowed.borrow), STATUS_OK);
  assert_int_equal(borrow(peer, "w"), STATUS_OK);
  assert_int_equal(fd_count, 0);
  struct message_weight_borrow again = {.name = "w", .lost_count = 1, .lost = {{.slab = borrowed.parts[0].slab}}};
  assert_int_equal(borrow_with(peer, &again), STATUS_OK);
  assert_int_equal(fstat(fds[0], &stat_of), 0);
  plant((uint32_t)stat_of.st_ino, borrowed.parts[0].offset + 100);
  close(fds[0]);
  assert_int_equal(give_back(peer, borrowed.borrow - 1), STATUS_OK);
  assert_int_equal(give_back(peer, borrowed.borrow), STATUS_OK); /* the last */
  while (life_ask_name(peer, COMMAND_weight_info, "w", NULL) == STATUS_OK)
    nap_shortly();
  assert_int_equal(life.failure.status, STATUS_NOT_FOUND);
  assert_int_equal(life_ask_name(peer, COMMAND_weight_info, "sound", NULL), STATUS_OK);
  load(peer, "w", 1); /* not what is there by that content */
  assert_int_equal(borrow(peer, "w"), STATUS_OK);
  end(peer);
}

/* ---- what makes no sense */

static void nonsense_is_refused(void **state) {
  int peer = begin();
  load(peer, "w", 1);
  assert_int_equal(borrow(peer, ""), STATUS_NOT_FOUND);
  assert_int_equal(borrow(peer, "nothing"), STATUS_NOT_FOUND);
  assert_int_equal(give_back(peer, 0), STATUS_NOT_FOUND);
  assert_int_equal(give_back(peer, UINT32_MAX), STATUS_NOT_FOUND);
  int new = peer_connect(&life.config);
  assert_int_equal(borrow(new, "w"), STATUS_WRONG_STATE);
  close(new);
  static struct peer_reply reply;
  const struct message_empty nothing = {.reserved = 0};
  static const uint32_t commands[] = {COMMAND_weight_borrow, COMMAND_weight_return, COMMAND_weight_hold};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    int other = life_client();
    peer_send(other, 7, commands[i], &message_empty_type, &nothing, NULL, 0);
    peer_receive(other, 7, NULL, NULL, &reply);
    packet_close(&reply.packet);
    assert_int_equal(reply.status, STATUS_PROTOCOL);
    peer_expect_end(other);
    close(other);
  }
  const struct message_weight_borrow request = {.name = "w"};
  int extra = open("/dev/null", O_RDONLY | O_CLOEXEC);
  assert_int_equal(peer_ask(peer, COMMAND_weight_borrow, &request, &extra, 1, NULL, &life.failure),
                   STATUS_BAD_DESCRIPTOR);
  close(extra);
  assert_int_equal(borrows_of(peer, "w"), 0);
  end(peer);
}

#define LIFE(test) cmocka_unit_test_setup_teardown(test, life_configure, life_clean)
#define USERS(test) cmocka_unit_test_setup_teardown(test, users_configure, life_clean)

int main(int count, char **words) {
  peer_main(count, words);
  const struct CMUnitTest tests[] = {
      LIFE(what_is_borrowed_is_what_was_loaded),
      LIFE(a_slab_comes_once_a_session),
      LIFE(a_borrower_cannot_write),
      USERS(nobody_but_gemmds_own_user_may),
      USERS(members_of_the_group_may),
      USERS(a_weight_among_others_is_moved),
      LIFE(the_first_sixteen_borrowers_are_listed),
      LIFE(no_range_of_what_is_lent_is_used_again),
      LIFE(memory_goes_with_the_last_borrow),
      LIFE(a_session_gives_back_what_it_had_however_it_ends),
      LIFE(who_holds_on_is_told_whether_it_is_the_same),
      LIFE(a_write_is_found_at_the_return),
      LIFE(nonsense_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
