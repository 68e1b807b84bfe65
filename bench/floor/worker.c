// Says "ready", reads when to stop, enters and leaves until then, and writes one line for each entry:
// token, asked, entered, leaving. Times are monotonic nanoseconds, as the other workers have them.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "worker.h"

struct entry { long long token, asked, entered, leaving; };

void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **given) {
    (void)count;
    long long stop;
    size_t done = 0, room = 1 << 16;
    struct entry *entries = malloc(room * sizeof *entries);
    connect_to(given + 1);
    puts("ready");
    fflush(stdout);
    if (scanf("%lld", &stop) != 1) fail("stop", "nobody says when");
    for (long long asked; (asked = now()) < stop;) {
        struct entry mine = {.asked = asked};
        mine.token = enter();
        mine.entered = now();
        mine.leaving = now();
        leave(mine.token);
        if (done == room) entries = realloc(entries, (room *= 2) * sizeof *entries);
        if (!entries) fail("entries", "out of memory");
        entries[done++] = mine;
    }
    for (size_t i = 0; i < done; i++)
        printf("%lld %lld %lld %lld\n", entries[i].token, entries[i].asked, entries[i].entered, entries[i].leaving);
    return 0;
}
