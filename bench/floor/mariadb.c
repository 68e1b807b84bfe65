// MariaDB: one call takes the lock, or queues and waits for the named lock of the one before it; one call
// hands over, and gives its own named lock back after the commit that granted the next is on the disk.
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "worker.h"

static MYSQL *server;
static char attempt[64];
static long long attempts, ticket;

static void ask(const char *text, long long *first, long long *second) { // the row of the answer
    if (mysql_query(server, text)) fail(text, mysql_error(server));
    do {
        MYSQL_RES *answer = mysql_store_result(server);
        if (!answer) continue;
        MYSQL_ROW row = mysql_fetch_row(answer);
        if (!row || !row[0]) fail(text, "was refused");
        *first = atoll(row[0]);
        *second = atoll(row[1]);
        mysql_free_result(answer);
    } while (!mysql_next_result(server));
}

void connect_to(char **where) { // host, port, user, database
    my_bool off = 0;
    server = mysql_init(NULL);
    mysql_optionsv(server, MYSQL_OPT_SSL_ENFORCE, &off);
    if (!mysql_real_connect(server, where[0], where[2], "", where[3], atoi(where[1]), NULL, CLIENT_MULTI_RESULTS))
        fail("connecting", mysql_error(server));
    if (mysql_query(server, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"))
        fail("connecting", mysql_error(server));
}

long long enter(void) {
    char text[200];
    long long token;
    snprintf(attempt, sizeof attempt, "worker%d-%lld", getpid(), ++attempts);
    snprintf(text, sizeof text, "CALL floor_acquire('" KEY "', '%s')", attempt);
    ask(text, &token, &ticket);
    return token;
}

void leave(long long token) {
    char text[200];
    long long held, next;
    snprintf(text, sizeof text, "CALL floor_release('" KEY "', '%s', %lld, %lld)", attempt, token, ticket);
    ask(text, &held, &next);
}
