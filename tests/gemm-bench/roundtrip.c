#include "roundtrip.h"

#include "clock.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS_MOST = 2000, ROUNDS_LEAST = 50, LONGEST_NS = 200000000 };

/* Until the other side closes. */
static void echo(int fd) {
  char byte;
  while (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1)
    ;
  _exit(0);
}

static bool measure(int fd, uint64_t pause_ns, struct histogram *histogram) {
  char byte = 'r';
  uint64_t end_ns = clock_ns() + LONGEST_NS;
  for (int i = 0; i < ROUNDS_MOST && (i < ROUNDS_LEAST || clock_ns() < end_ns); i++) {
    if (pause_ns > 0)
      clock_sleep(pause_ns);
    uint64_t begin_ns = clock_ns();
    if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
      return false;
    histogram_add(histogram, clock_ns() - begin_ns);
  }
  return true;
}

bool roundtrip_measure(uint64_t pause_ns, struct histogram *histogram) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return false;
  pid_t process = fork();
  if (process == 0) {
    close(pair[0]);
    echo(pair[1]);
  }
  close(pair[1]);
  bool measured = process > 0 && measure(pair[0], pause_ns, histogram);
  close(pair[0]);
  if (process > 0)
    waitpid(process, NULL, 0);
  return measured;
}
