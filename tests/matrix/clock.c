/* A C library's clock that can be set wrong from outside: preloaded into a role by the fault matrix.

   The file named by STRETTO_TEST_CLOCK holds: wall (nanoseconds that the wall clock is off), base (true monotonic
   nanoseconds since when the rate holds), added (monotonic nanoseconds gained before), rate. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting { volatile int64_t wall, base, added; volatile double rate; };
static struct setting *setting;
static int (*true_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
  true_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *name = getenv("STRETTO_TEST_CLOCK");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *found = mmap(NULL, sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
  if (found != MAP_FAILED) setting = found;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
  if (!true_clock) start();
  int result = true_clock(clock, out);
  if (result || !setting) return result;
  int64_t now = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec;
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now += setting->wall;
  else if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_MONOTONIC_RAW ||
           clock == CLOCK_BOOTTIME)
    now += setting->added + (int64_t)((now - setting->base) * (setting->rate - 1.0));
  else return result;
  out->tv_sec = now / 1000000000;
  out->tv_nsec = now % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *out, void *zone) {
  struct timespec now;
  int result = clock_gettime(CLOCK_REALTIME, &now);
  if (!result && out) { out->tv_sec = now.tv_sec; out->tv_usec = now.tv_nsec / 1000; }
  return result;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
