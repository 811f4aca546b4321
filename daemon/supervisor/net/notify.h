/* Tells the service manager: sd_notify(3)'s protocol, without its library. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* There is a service manager that listens. */
bool notify_present(void);
/* The service manager is told nothing from here on: it looks after whoever started this process, and not after this. */
void notify_nobody(void);
/* Sends lines such as "READY=1\nSTATUS=...". Nothing happens where no service manager listens. */
void notify_send(const char *state);
/* The same with a descriptor, which stays the caller's: "FDSTORE=1\nFDNAME=...". False where it was not sent. */
bool notify_send_fd(const char *state, int fd);
/* How often the service manager wants to hear "WATCHDOG=1", in ms; 0: it does not. */
uint64_t notify_watchdog_ms(void);
