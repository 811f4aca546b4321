/* Memory of a process that no other has, as the kernel counts it. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* RssAnon, in bytes; 0 where there is no such process, and in a build with a sanitizer. */
uint64_t private_bytes(pid_t pid);
