// One worker of a contest in C. Each database has its own of these three.
#define KEY "one"

void connect_to(char **where);        // connect, and prepare what is asked
long long enter(void);                // take the lock, or wait until it is handed to us; return the token
void leave(long long token);          // hand it to the next in line, or free it
__attribute__((noreturn)) void fail(const char *what, const char *why);
