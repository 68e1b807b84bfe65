-- holdfast on PostgreSQL, version 1. Times are microseconds since the epoch, by the database's clock.

CREATE TABLE holdfast_meta (
    id           integer PRIMARY KEY CHECK (id = 1),
    version      integer NOT NULL,
    token_floor  bigint NOT NULL,      -- at least every token of a row that was swept away
    store_id     text NOT NULL         -- tells these tables from all others
);

-- One row a key. A lease with one hold lives in this row alone, so that taking and releasing a free
-- lock is one statement on one row; with re-entry all its holds are in holdfast_holds.
CREATE TABLE holdfast_locks (
    lock_key     text COLLATE "C" PRIMARY KEY,
    token        bigint NOT NULL,      -- highest ever granted; 0: never granted yet, made only to be locked
    owner        text COLLATE "C",     -- NULL: free
    attempt      text COLLATE "C",     -- of the only hold; NULL when free or holds > 0
    claimed      smallint NOT NULL DEFAULT 1,
    expires_at   bigint NOT NULL,      -- end of the lease; of a free lock: when it became free
    granted_at   bigint NOT NULL,
    instance     text COLLATE "C" NOT NULL,    -- of the holder
    host         text NOT NULL,
    pid          bigint NOT NULL,
    last_attempt text COLLATE "C",     -- whose release freed it last
    holds        integer NOT NULL DEFAULT 0,   -- rows in holdfast_holds
    waiters      integer NOT NULL DEFAULT 0,   -- rows in holdfast_tickets
    next_ticket  bigint NOT NULL DEFAULT 1,
    events       bigint,               -- the number of its last event; NULL: to be looked up in the history
    -- Makes the token part of a key. A fence takes FOR KEY SHARE on the row: then renewing passes, and a
    -- grant, which changes the token, waits for the fencing transaction.
    CONSTRAINT holdfast_locks_token UNIQUE (lock_key, token)
) WITH (fillfactor = 70);
-- Only of locks that are held. Said in words that no statement but those meant for them uses: while few locks are
-- held, the planner would take a small index for a quick way to find a key, and keep to that when they are many.
CREATE INDEX holdfast_locks_by_owner ON holdfast_locks (owner, lock_key) WHERE coalesce(owner, '') <> '';
CREATE INDEX holdfast_locks_by_expiry ON holdfast_locks (expires_at) WHERE coalesce(owner, '') <> '';

CREATE TABLE holdfast_holds (
    lock_key     text COLLATE "C" NOT NULL,
    attempt      text COLLATE "C" NOT NULL,
    claimed      smallint NOT NULL,
    expires_at   bigint NOT NULL,
    PRIMARY KEY (lock_key, attempt)
);

CREATE TABLE holdfast_tickets (
    lock_key     text COLLATE "C" NOT NULL,
    number       bigint NOT NULL,      -- the order of the queue
    attempt      text COLLATE "C" NOT NULL,
    owner        text COLLATE "C" NOT NULL,
    instance     text COLLATE "C" NOT NULL,
    host         text NOT NULL,
    pid          bigint NOT NULL,
    claim        bigint NOT NULL,      -- microseconds the winner has to claim a hand-over
    queued_at    bigint NOT NULL,
    expires_at   bigint NOT NULL,
    PRIMARY KEY (lock_key, number)
);
CREATE UNIQUE INDEX holdfast_tickets_by_attempt ON holdfast_tickets (lock_key, attempt);

-- Attempts that are over, remembered for a while: a late copy of their Acquire must find nothing to take.
CREATE TABLE holdfast_ended (
    lock_key     text COLLATE "C" NOT NULL,
    attempt      text COLLATE "C" NOT NULL,
    why          text NOT NULL,        -- released, withdrawn, expired, broken
    broken_by    text,
    reason       text,
    until_at     bigint NOT NULL,
    PRIMARY KEY (lock_key, attempt)
);
CREATE INDEX holdfast_ended_by_time ON holdfast_ended (until_at);

-- What happened, by weeks: sweeping makes partitions ahead and drops old ones. What belongs to no week that
-- is there goes into the rest.
CREATE TABLE holdfast_history (
    lock_key     text COLLATE "C" NOT NULL,
    number       bigint NOT NULL,      -- per key, in order
    kind         text NOT NULL,
    at           bigint NOT NULL,
    token        bigint NOT NULL,
    owner        text COLLATE "C",
    caused_by    text,
    reason       text,
    PRIMARY KEY (lock_key, number, at)
) PARTITION BY RANGE (at);
CREATE INDEX holdfast_history_by_time ON holdfast_history (at);
CREATE TABLE holdfast_history_rest PARTITION OF holdfast_history DEFAULT;

INSERT INTO holdfast_meta (id, version, token_floor, store_id) VALUES (1, 1, 0, gen_random_uuid()::text);
