-- holdfast on SQLite, version 1. Times are microseconds since the epoch, by the database's clock.

CREATE TABLE holdfast_meta (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    version      INTEGER NOT NULL,
    token_floor  INTEGER NOT NULL,     -- at least every token of a row that was swept away
    store_id     TEXT NOT NULL         -- tells these tables from all others
);

-- One row a key. A hold on plain terms that is the only one lives in this row alone, so that taking and
-- releasing a free lock is one statement on one row; all others are in holdfast_holds. A lock that is shut
-- has an owner and no hold.
CREATE TABLE holdfast_locks (
    lock_key     TEXT PRIMARY KEY,     -- compared byte for byte (BINARY is the default collation)
    token        INTEGER NOT NULL,     -- highest ever granted; stays when the lock is free
    owner        TEXT,                 -- of the hold that was granted first; NULL: free
    attempt      TEXT,                 -- of the only hold; NULL when free or shut, or holds > 0
    claimed      INTEGER NOT NULL DEFAULT 1,
    expires_at   INTEGER NOT NULL,     -- of the last hold, or of being shut; of a free lock: when it became free
    granted_at   INTEGER NOT NULL,
    instance     TEXT NOT NULL,        -- of the holder
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    last_attempt TEXT,                 -- whose release freed it last
    holds        INTEGER NOT NULL DEFAULT 0,   -- rows in holdfast_holds
    waiters      INTEGER NOT NULL DEFAULT 0,   -- rows in holdfast_tickets
    next_ticket  INTEGER NOT NULL DEFAULT 1,
    events       INTEGER,              -- the number of its last event; NULL: to be looked up in the history
    notes        TEXT                  -- JSON: capacity, failures and the like; NULL: nothing
) WITHOUT ROWID;
CREATE INDEX holdfast_locks_by_owner ON holdfast_locks (owner) WHERE owner IS NOT NULL;
CREATE INDEX holdfast_locks_by_expiry ON holdfast_locks (expires_at) WHERE owner IS NOT NULL;

CREATE TABLE holdfast_holds (
    lock_key     TEXT NOT NULL,
    attempt      TEXT NOT NULL,
    owner        TEXT NOT NULL,
    token        INTEGER NOT NULL,     -- of its lease
    terms        TEXT,                 -- JSON; NULL: plain
    claimed      INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    granted_at   INTEGER NOT NULL,     -- when its lease began
    instance     TEXT NOT NULL,
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    PRIMARY KEY (lock_key, attempt)
) WITHOUT ROWID;
CREATE INDEX holdfast_holds_by_owner ON holdfast_holds (owner, lock_key);

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
    terms        TEXT,                 -- JSON; NULL: plain
    PRIMARY KEY (lock_key, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX holdfast_tickets_by_attempt ON holdfast_tickets (lock_key, attempt);
CREATE INDEX holdfast_tickets_by_owner ON holdfast_tickets (owner, lock_key);

-- Attempts that are over, remembered for a while: a late copy of their Acquire must find nothing to take.
CREATE TABLE holdfast_ended (
    lock_key     TEXT NOT NULL,
    attempt      TEXT NOT NULL,
    why          TEXT NOT NULL,        -- released, withdrawn, expired, broken, done, failed, deadlocked, refused
    broken_by    TEXT,
    reason       TEXT,
    until_at     INTEGER NOT NULL,
    PRIMARY KEY (lock_key, attempt)
) WITHOUT ROWID;
CREATE INDEX holdfast_ended_by_time ON holdfast_ended (until_at);

-- How operations ended, remembered for a while: those who waited ask.
CREATE TABLE holdfast_outcomes (
    lock_key     TEXT NOT NULL,
    token        INTEGER NOT NULL,
    succeeded    INTEGER NOT NULL,
    text         TEXT NOT NULL,        -- the result or the failures, as JSON
    until_at     INTEGER NOT NULL,
    PRIMARY KEY (lock_key, token)
) WITHOUT ROWID;
CREATE INDEX holdfast_outcomes_by_time ON holdfast_outcomes (until_at);

CREATE TABLE holdfast_history (
    lock_key     TEXT NOT NULL,
    number       INTEGER NOT NULL,     -- per key, in order
    kind         TEXT NOT NULL,
    at           INTEGER NOT NULL,
    token        INTEGER NOT NULL,
    owner        TEXT,
    caused_by    TEXT,
    reason       TEXT,
    feed         INTEGER,              -- its place in the order of all events; NULL: nobody has watched yet
    PRIMARY KEY (lock_key, number)
) WITHOUT ROWID;
CREATE INDEX holdfast_history_by_time ON holdfast_history (at);
CREATE UNIQUE INDEX holdfast_history_by_feed ON holdfast_history (feed) WHERE feed IS NOT NULL;
CREATE INDEX holdfast_history_unplaced ON holdfast_history (at, lock_key, number) WHERE feed IS NULL;

CREATE TABLE holdfast_feed (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    last         INTEGER NOT NULL      -- the place of the last event that has one
);

-- Who may ask a server what. Not the secret of a token, only its digest.
CREATE TABLE holdfast_access (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,        -- of whoever has it
    digest       TEXT NOT NULL,        -- SHA-256 of the secret, in hexadecimal
    rights       TEXT NOT NULL,        -- JSON: a list of verb:pattern
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER               -- NULL: until it is revoked
) WITHOUT ROWID;
CREATE INDEX holdfast_access_by_time ON holdfast_access (expires_at) WHERE expires_at IS NOT NULL;

-- Who has joined a cluster.
CREATE TABLE holdfast_instances (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    address      TEXT NOT NULL,        -- where it is signalled
    version      TEXT NOT NULL,
    capacity     INTEGER NOT NULL,     -- how much work it can have at a time
    state        TEXT NOT NULL,        -- alive, draining, left, dead
    joined_at    INTEGER NOT NULL,
    beat_at      INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,     -- alive or draining: from then on it is dead, whoever notices; left: when it did
    claims       INTEGER NOT NULL DEFAULT 0,   -- the number of its last claim
    load         INTEGER NOT NULL DEFAULT 0,       -- how much work it has at most: less may have ended since; spares claims to count
    asked_at     INTEGER NOT NULL,     -- when that was
    wants        TEXT                  -- types of work, with a line break before and behind each; NULL: none
) WITHOUT ROWID;
CREATE INDEX holdfast_instances_by_state ON holdfast_instances (state, expires_at);

-- What is to be done, and by whom it is done. Who has the lease of its key has the work: the rest is for looking at.
-- With row ids, other than the rest: rows may be long, and claims change them often.
CREATE TABLE holdfast_work (
    work_key     TEXT PRIMARY KEY,     -- the lock's
    type         TEXT NOT NULL,        -- the key up to the first colon
    state        TEXT NOT NULL,        -- offered, assigned, completed, failed
    due_at       INTEGER NOT NULL,     -- offered: to be claimed from then on; assigned: to be looked at; else: when it ended
    data         TEXT NOT NULL,        -- JSON
    text         TEXT NOT NULL,        -- the result as JSON, or what went wrong; empty: nothing yet
    tries        INTEGER NOT NULL DEFAULT 0,
    max_tries    INTEGER NOT NULL,     -- 0: no limit
    instance     TEXT NOT NULL DEFAULT '',     -- that has it, or had it last
    attempt      TEXT NOT NULL DEFAULT '',     -- of its lease, or of the last
    token        INTEGER NOT NULL DEFAULT 0,
    claim        INTEGER NOT NULL DEFAULT 0,   -- the number of the claim that took it
    offered_at   INTEGER NOT NULL,
    assigned_at  INTEGER
);
CREATE INDEX holdfast_work_by_due ON holdfast_work (state, type, due_at, work_key);
CREATE INDEX holdfast_work_by_instance ON holdfast_work (instance, state, work_key);
CREATE INDEX holdfast_work_by_end ON holdfast_work (due_at) WHERE state IN ('completed', 'failed');

INSERT INTO holdfast_feed (id, last) VALUES (1, 0);
INSERT INTO holdfast_meta (id, version, token_floor, store_id) VALUES (1, 1, 0, lower(hex(randomblob(16))));
