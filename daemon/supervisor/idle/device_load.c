#include "device_load.h"

#include "../../log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PERIOD_MS = 250, END_MS = 1000, PROCESSES = 64 };

/* ---- NVML, as its header has it */

typedef struct nvml_device *nvml_device;

struct nvml_utilization {
  unsigned gpu, memory; /* percent */
};

struct nvml_process {
  unsigned pid;
  unsigned long long bytes; /* all ones: not told */
  unsigned gpu_instance, compute_instance;
};

struct nvml {
  int (*init)(void);
  int (*by_uuid)(const char *uuid, nvml_device *device);
  int (*utilization)(nvml_device device, struct nvml_utilization *out);
  int (*processes)(nvml_device device, unsigned *count, struct nvml_process *list);
};

static bool find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static bool load_nvml(struct nvml *nvml) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    return false;
  if (find(library, "nvmlInit_v2", &nvml->init) && find(library, "nvmlDeviceGetHandleByUUID", &nvml->by_uuid) &&
      find(library, "nvmlDeviceGetUtilizationRates", &nvml->utilization) &&
      find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes) && nvml->init() == 0)
    return true; /* the library stays to the end of the process */
  dlclose(library);
  return false;
}

/* ---- devices */

struct watched {
  bool wanted, looked_up;
  uint8_t uuid[16];
  uint32_t pid;
  nvml_device device; /* NULL: it is not known by that UUID */
  struct device_reading reading;
};

struct device_load {
  struct nvml nvml; /* the thread's */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool ending, ended;
  struct watched devices[LIMIT_DEVICES];
};

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static nvml_device look_up(const struct nvml *nvml, const uint8_t uuid[16]) {
  static const char *const kinds[] = {"GPU", "MIG"};
  nvml_device device;
  char text[64];
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    int at = snprintf(text, sizeof text, "%s-", kinds[k]);
    for (int i = 0; i < 16; i++)
      at += snprintf(text + at, sizeof text - (size_t)at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                     uuid[i]);
    if (nvml->by_uuid(text, &device) == 0)
      return device;
  }
  return NULL;
}

static void read_memory(const struct nvml *nvml, const struct watched *watched, struct device_reading *reading) {
  struct nvml_process list[PROCESSES];
  unsigned count = PROCESSES;
  if (watched->pid == 0 || nvml->processes(watched->device, &count, list) != 0)
    return;
  for (unsigned i = 0; i < count && i < PROCESSES; i++) {
    if (list[i].pid == watched->pid && list[i].bytes != ~0ull) {
      reading->memory_known = true;
      reading->memory_bytes = list[i].bytes;
    }
  }
}

/* Without the lock: the driver may take its time. */
static struct device_reading ask(const struct nvml *nvml, const struct watched *watched) {
  struct device_reading reading = {.at_ns = clock_ns()};
  struct nvml_utilization utilization;
  if (watched->device == NULL)
    return reading;
  if (nvml->utilization(watched->device, &utilization) == 0) {
    reading.measured = true;
    reading.busy = utilization.gpu > 0;
  }
  read_memory(nvml, watched, &reading);
  return reading;
}

static void visit(struct device_load *load, struct watched *watched) {
  struct watched copy = *watched;
  pthread_mutex_unlock(&load->mutex);
  if (!copy.looked_up)
    copy.device = look_up(&load->nvml, copy.uuid);
  struct device_reading reading = ask(&load->nvml, &copy);
  pthread_mutex_lock(&load->mutex);
  if (memcmp(copy.uuid, watched->uuid, sizeof copy.uuid) != 0)
    return; /* another device has this number by now */
  watched->device = copy.device;
  watched->looked_up = true;
  watched->reading = reading;
}

static void *run(void *user) {
  struct device_load *load = user;
  pthread_mutex_lock(&load->mutex);
  while (!load->ending) {
    for (uint32_t i = 0; i < LIMIT_DEVICES && !load->ending; i++)
      if (load->devices[i].wanted)
        visit(load, &load->devices[i]);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PERIOD_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (!load->ending)
      pthread_cond_timedwait(&load->changed, &load->mutex, &until);
  }
  load->ended = true;
  pthread_cond_broadcast(&load->changed);
  pthread_mutex_unlock(&load->mutex);
  return NULL;
}

/* Its waits end in time also where somebody sets the clock. */
static void init_steady(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

struct device_load *device_load_open(void) {
  struct device_load *load = calloc(1, sizeof *load);
  if (load == NULL || !load_nvml(&load->nvml)) {
    free(load);
    return NULL;
  }
  pthread_mutex_init(&load->mutex, NULL);
  init_steady(&load->changed);
  if (pthread_create(&load->thread, NULL, run, load) == 0)
    return load;
  log_warning("no thread to ask NVML");
  pthread_cond_destroy(&load->changed);
  pthread_mutex_destroy(&load->mutex);
  free(load);
  return NULL;
}

void device_load_watch(struct device_load *load, uint32_t device, const uint8_t uuid[16], uint32_t pid) {
  struct watched *watched = &load->devices[device];
  pthread_mutex_lock(&load->mutex);
  if (!watched->wanted || memcmp(watched->uuid, uuid, sizeof watched->uuid) != 0)
    *watched = (struct watched){.wanted = true};
  memcpy(watched->uuid, uuid, sizeof watched->uuid);
  if (watched->pid != pid)
    watched->reading.memory_known = false;
  watched->pid = pid;
  pthread_mutex_unlock(&load->mutex);
}

struct device_reading device_load_read(struct device_load *load, uint32_t device) {
  pthread_mutex_lock(&load->mutex);
  struct device_reading reading = load->devices[device].reading;
  pthread_mutex_unlock(&load->mutex);
  return reading;
}

void device_load_close(struct device_load *load) {
  struct timespec until;
  if (load == NULL)
    return;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += END_MS / 1000;
  pthread_mutex_lock(&load->mutex);
  load->ending = true;
  pthread_cond_broadcast(&load->changed);
  int rc = 0;
  while (!load->ended && rc == 0)
    rc = pthread_cond_timedwait(&load->changed, &load->mutex, &until);
  bool ended = load->ended;
  pthread_mutex_unlock(&load->mutex);
  if (!ended) {
    pthread_detach(load->thread);
    log_warning("NVML does not answer; it is left alone");
    return;
  }
  pthread_join(load->thread, NULL);
  pthread_cond_destroy(&load->changed);
  pthread_mutex_destroy(&load->mutex);
  free(load);
}
