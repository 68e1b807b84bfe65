// PostgreSQL: one call takes the lock or queues, one hands it over; the winner is told its token by NOTIFY,
// which the server sends after the commit that granted it is on the disk.
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "worker.h"

static PGconn *server;
static char instance[32], attempt[64];
static long long attempts;

static void run(const char *text) {
    PGresult *done = PQexec(server, text);
    if (PQresultStatus(done) != PGRES_COMMAND_OK) fail(text, PQresultErrorMessage(done));
    PQclear(done);
}

static void prepare(const char *name, const char *text) {
    PGresult *done = PQprepare(server, name, text, 0, NULL);
    if (PQresultStatus(done) != PGRES_COMMAND_OK) fail(name, PQresultErrorMessage(done));
    PQclear(done);
}

static long long ask(const char *name, int count, const char **values) { // -1: refused
    PGresult *done = PQexecPrepared(server, name, count, values, NULL, NULL, 0);
    if (PQresultStatus(done) != PGRES_TUPLES_OK) fail(name, PQresultErrorMessage(done));
    long long answer = PQgetisnull(done, 0, 0) ? -1 : atoll(PQgetvalue(done, 0, 0));
    PQclear(done);
    return answer;
}

void connect_to(char **where) {
    char listen[64];
    server = PQconnectdb(where[0]);
    if (PQstatus(server) != CONNECTION_OK) fail("connecting", PQerrorMessage(server));
    run("SET plan_cache_mode = 'force_generic_plan'");
    run("SET enable_seqscan = off"); // the tables are small when the plans are made
    run("SET enable_bitmapscan = off");
    run("SET jit = off");
    snprintf(instance, sizeof instance, "worker%d", getpid());
    snprintf(listen, sizeof listen, "LISTEN %s", instance);
    run(listen);
    prepare("acquire", "SELECT floor_acquire($1, $2, $3)");
    prepare("release", "SELECT floor_release($1, $2, $3)");
}

static long long granted(void) { // 0: not told yet
    long long token = 0;
    for (PGnotify *told; (told = PQnotifies(server)); PQfreemem(told)) {
        size_t length = strlen(attempt);
        if (!strncmp(told->extra, attempt, length) && told->extra[length] == '\n')
            token = atoll(told->extra + length + 1);
    }
    return token;
}

long long enter(void) {
    const char *values[] = {KEY, attempt, instance};
    long long token;
    snprintf(attempt, sizeof attempt, "%s-%lld", instance, ++attempts);
    while ((token = ask("acquire", 3, values)) < 0); // freed or taken meanwhile
    if (token) return token;
    while (!(token = granted())) {
        struct pollfd line = {PQsocket(server), POLLIN, 0};
        if (poll(&line, 1, 10000) <= 0) fail(attempt, "was not told");
        if (!PQconsumeInput(server)) fail("listening", PQerrorMessage(server));
    }
    return token;
}

void leave(long long token) {
    char number[32];
    const char *values[] = {KEY, attempt, number};
    snprintf(number, sizeof number, "%lld", token);
    if (ask("release", 3, values) < 0) fail(attempt, "did not hold it");
}
