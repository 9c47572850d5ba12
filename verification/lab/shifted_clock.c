/* A wall clock that can be set, for one process: preloaded between a program and the C library.
 *
 * The environment variable SHIFTED_CLOCK names a file of eight bytes: by how many microseconds the time of day differs
 * from the truth, from the next question on. Clocks that never step are left alone. No header is needed, so that the
 * compiler alone is enough to build it.
 */
struct timespec { long seconds, nanoseconds; };
struct timeval { long seconds, microseconds; };

extern long syscall(long number, ...);
extern char *getenv(const char *name);
extern int open(const char *path, int flags, ...);
extern void *mmap(void *address, unsigned long size, int protection, int flags, int file, long offset);

#if defined(__x86_64__)
enum { CLOCK_GETTIME = 228 };
#elif defined(__aarch64__)
enum { CLOCK_GETTIME = 113 };
#else
#error "add the number of the system call clock_gettime for this machine"
#endif
enum { REALTIME = 0, REALTIME_COARSE = 5, READ_ONLY = 0, PROT_READ = 1, MAP_SHARED = 1, MILLION = 1000000 };

static long truth;
static volatile long *shift;

static long shift_now(void) {
  if (!shift) {
    const char *path = getenv("SHIFTED_CLOCK");
    int file = path ? open(path, READ_ONLY) : -1;
    void *mapped = file < 0 ? (void *)-1 : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    shift = mapped == (void *)-1 ? &truth : mapped;
  }
  return *shift;
}

int clock_gettime(int clock, struct timespec *time) {
  long result = syscall(CLOCK_GETTIME, (long)clock, time);
  if (result == 0 && (clock == REALTIME || clock == REALTIME_COARSE)) {
    long total = time->seconds * MILLION + time->nanoseconds / 1000 + shift_now();
    time->nanoseconds = total % MILLION * 1000 + time->nanoseconds % 1000;
    time->seconds = total / MILLION;
  }
  return (int)result;
}

int gettimeofday(struct timeval *time, void *zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(REALTIME, &now);
  time->seconds = now.seconds;
  time->microseconds = now.nanoseconds / 1000;
  return 0;
}

long time(long *result) {
  struct timespec now;
  clock_gettime(REALTIME, &now);
  if (result) *result = now.seconds;
  return now.seconds;
}
