-- holdfast on SQLite, version 1. Times are microseconds since the epoch, by the database's clock.

CREATE TABLE holdfast_meta (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    version      INTEGER NOT NULL,
    token_floor  INTEGER NOT NULL,     -- at least every token of a row that was swept away
    store_id     TEXT NOT NULL         -- tells these tables from all others
);

-- One row a key. A lease with one hold lives in this row alone, so that taking and releasing a free
-- lock is one statement on one row; with re-entry all its holds are in holdfast_holds.
CREATE TABLE holdfast_locks (
    lock_key     TEXT PRIMARY KEY,     -- compared byte for byte (BINARY is the default collation)
    token        INTEGER NOT NULL,     -- highest ever granted; stays when the lock is free
    owner        TEXT,                 -- NULL: free
    attempt      TEXT,                 -- of the only hold; NULL when free or holds > 0
    claimed      INTEGER NOT NULL DEFAULT 1,
    expires_at   INTEGER NOT NULL,     -- end of the lease; of a free lock: when it became free
    granted_at   INTEGER NOT NULL,
    instance     TEXT NOT NULL,        -- of the holder
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    last_attempt TEXT,                 -- whose release freed it last
    holds        INTEGER NOT NULL DEFAULT 0,   -- rows in holdfast_holds
    waiters      INTEGER NOT NULL DEFAULT 0,   -- rows in holdfast_tickets
    next_ticket  INTEGER NOT NULL DEFAULT 1,
    events       INTEGER               -- the number of its last event; NULL: to be looked up in the history
) WITHOUT ROWID;
CREATE INDEX holdfast_locks_by_owner ON holdfast_locks (owner) WHERE owner IS NOT NULL;
CREATE INDEX holdfast_locks_by_expiry ON holdfast_locks (expires_at) WHERE owner IS NOT NULL;

CREATE TABLE holdfast_holds (
    lock_key     TEXT NOT NULL,
    attempt      TEXT NOT NULL,
    claimed      INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    PRIMARY KEY (lock_key, attempt)
) WITHOUT ROWID;

CREATE TABLE holdfast_tickets (
    lock_key     TEXT NOT NULL,
    number       INTEGER NOT NULL,     -- the order of the queue
    attempt      TEXT NOT NULL,
    owner        TEXT NOT NULL,
    instance     TEXT NOT NULL,
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    claim        INTEGER NOT NULL,     -- microseconds the winner has to claim a hand-over
    queued_at    INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    PRIMARY KEY (lock_key, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX holdfast_tickets_by_attempt ON holdfast_tickets (lock_key, attempt);

-- Attempts that are over, remembered for a while: a late copy of their Acquire must find nothing to take.
CREATE TABLE holdfast_ended (
    lock_key     TEXT NOT NULL,
    attempt      TEXT NOT NULL,
    why          TEXT NOT NULL,        -- released, withdrawn, expired, broken
    broken_by    TEXT,
    reason       TEXT,
    until_at     INTEGER NOT NULL,
    PRIMARY KEY (lock_key, attempt)
) WITHOUT ROWID;
CREATE INDEX holdfast_ended_by_time ON holdfast_ended (until_at);

CREATE TABLE holdfast_history (
    lock_key     TEXT NOT NULL,
    number       INTEGER NOT NULL,     -- per key, in order
    kind         TEXT NOT NULL,
    at           INTEGER NOT NULL,
    token        INTEGER NOT NULL,
    owner        TEXT,
    caused_by    TEXT,
    reason       TEXT,
    PRIMARY KEY (lock_key, number)
) WITHOUT ROWID;
CREATE INDEX holdfast_history_by_time ON holdfast_history (at);

INSERT INTO holdfast_meta (id, version, token_floor, store_id) VALUES (1, 1, 0, lower(hex(randomblob(16))));
