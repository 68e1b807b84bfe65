/* Put before a database's own libraries (LD_PRELOAD), this makes its disk slow or broken, and sets its clock.

   What it does is read from a file that is mapped into memory, so it changes at once, in all processes that have
   it, and costs nothing while there is nothing to do. preload.py writes that file. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
    int64_t offset;  /* microseconds that the wall clock is ahead */
    int64_t delay;   /* microseconds that a flush takes longer */
    int64_t error;   /* the errno with which it fails; 0: it does not */
    int64_t held;    /* not 0: none begins before this is 0 again */
    int64_t flushes; /* how many there were: shows that we are here at all */
};

static struct control nothing;
static volatile struct control *control = &nothing;

/* The version matters: of pthread_cond_timedwait there is an older one with another layout of conditions. */
static void *real(const char *name, const char *version) {
    void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
    return found ? found : dlsym(RTLD_NEXT, name);
}

#define REAL(name, version) \
    static __typeof__(&name) found; \
    if (!found) found = (__typeof__(&name))real(#name, version)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("PROOF_CONTROL");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) control = mapped;
}

/* The disk. */

static const int64_t PIECE = 10000; /* microseconds: a delay is waited for in pieces, so that healing ends it */

static void rest(int64_t micros) {
    struct timespec time = {0, micros * 1000};
    nanosleep(&time, NULL);
}

static int disturbed(void) {
    __atomic_fetch_add((int64_t *)&control->flushes, 1, __ATOMIC_RELAXED);
    for (int64_t waited = 0; waited < control->delay; waited += PIECE) {
        int64_t left = control->delay - waited;
        rest(left < PIECE ? left : PIECE);
    }
    while (control->held) rest(500);
    if (control->error) {
        errno = (int)control->error;
        return 1;
    }
    return 0;
}

int fsync(int file) {
    REAL(fsync, NULL);
    return disturbed() ? -1 : found(file);
}

int fdatasync(int file) {
    REAL(fdatasync, NULL);
    return disturbed() ? -1 : found(file);
}

int syncfs(int file) {
    REAL(syncfs, NULL);
    return disturbed() ? -1 : found(file);
}

int msync(void *start, size_t length, int flags) {
    REAL(msync, NULL);
    return flags & MS_SYNC && disturbed() ? -1 : found(start, length, flags);
}

/* The clock. Only the one that people read: what waits for a while goes by the monotonic ones. */

static void shift(struct timespec *moment, int64_t micros) {
    int64_t nanos = moment->tv_nsec + micros % 1000000 * 1000;
    moment->tv_sec += micros / 1000000 + (nanos >= 1000000000) - (nanos < 0);
    moment->tv_nsec = nanos + (nanos < 0 ? 1000000000 : nanos >= 1000000000 ? -1000000000 : 0);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime, NULL);
    int failed = found(clock, now);
    int64_t offset = control->offset;
    if (offset && !failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(now, offset);
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(gettimeofday, NULL);
    int failed = found(now, zone);
    int64_t offset = control->offset;
    if (offset && !failed) {
        struct timespec moment = {now->tv_sec, now->tv_usec * 1000};
        shift(&moment, offset);
        now->tv_sec = moment.tv_sec;
        now->tv_usec = moment.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}

/* Waiting until a moment by that clock: the kernel goes by the real one. Conditions may have another clock, and
   they do not tell; but no machine has been up for thirty years. */

static const struct timespec *honest(const struct timespec *until, struct timespec *changed) {
    int64_t offset = control->offset;
    if (!offset || until->tv_sec < 1000000000) return until;
    *changed = *until;
    shift(changed, -offset);
    return changed;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    REAL(pthread_cond_timedwait, "GLIBC_2.3.2");
    struct timespec changed;
    return found(condition, mutex, honest(until, &changed));
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict until) {
    REAL(pthread_cond_clockwait, NULL);
    struct timespec changed;
    return found(condition, mutex, clock, clock == CLOCK_REALTIME ? honest(until, &changed) : until);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    REAL(pthread_mutex_timedlock, NULL);
    struct timespec changed;
    return found(mutex, honest(until, &changed));
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    REAL(sem_timedwait, NULL);
    struct timespec changed;
    return found(semaphore, honest(until, &changed));
}
