-- holdfast on PostgreSQL, version 1. Times are microseconds since the epoch, by the database's clock.

CREATE TABLE holdfast_meta (
    id           integer PRIMARY KEY CHECK (id = 1),
    version      integer NOT NULL,
    token_floor  bigint NOT NULL,      -- at least every token of a row that was swept away
    store_id     text NOT NULL         -- tells these tables from all others
);

-- One row a key. A hold on plain terms that is the only one lives in this row alone, so that taking and releasing a
-- free lock is one statement on one row; all others are in holdfast_holds. A lock that is shut has an owner and no hold.
CREATE TABLE holdfast_locks (
    lock_key     text COLLATE "C" PRIMARY KEY,
    token        bigint NOT NULL,      -- highest ever granted; 0: never granted yet, made only to be locked
    owner        text COLLATE "C",     -- of the hold that was granted first; NULL: free
    attempt      text COLLATE "C",     -- of the only hold; NULL when free or shut, or holds > 0
    claimed      smallint NOT NULL DEFAULT 1,
    expires_at   bigint NOT NULL,      -- of the last hold, or of being shut; of a free lock: when it became free
    granted_at   bigint NOT NULL,
    instance     text COLLATE "C" NOT NULL,    -- of the holder
    host         text NOT NULL,
    pid          bigint NOT NULL,
    last_attempt text COLLATE "C",     -- whose release freed it last
    holds        integer NOT NULL DEFAULT 0,   -- rows in holdfast_holds
    waiters      integer NOT NULL DEFAULT 0,   -- rows in holdfast_tickets
    next_ticket  bigint NOT NULL DEFAULT 1,
    events       bigint,               -- the number of its last event; NULL: to be looked up in the history
    notes        text,                 -- JSON: capacity, failures and the like; NULL: nothing
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
    owner        text COLLATE "C" NOT NULL,
    token        bigint NOT NULL,      -- of its lease
    terms        text,                 -- JSON; NULL: plain
    claimed      smallint NOT NULL,
    expires_at   bigint NOT NULL,
    granted_at   bigint NOT NULL,
    instance     text COLLATE "C" NOT NULL,
    host         text NOT NULL,
    pid          bigint NOT NULL,
    PRIMARY KEY (lock_key, attempt)
) WITH (fillfactor = 70);
CREATE INDEX holdfast_holds_by_owner ON holdfast_holds (owner, lock_key);

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
    terms        text,                 -- JSON; NULL: plain
    PRIMARY KEY (lock_key, number)
);
CREATE UNIQUE INDEX holdfast_tickets_by_attempt ON holdfast_tickets (lock_key, attempt);
CREATE INDEX holdfast_tickets_by_owner ON holdfast_tickets (owner, lock_key);

-- Attempts that are over, remembered for a while: a late copy of their Acquire must find nothing to take.
CREATE TABLE holdfast_ended (
    lock_key     text COLLATE "C" NOT NULL,
    attempt      text COLLATE "C" NOT NULL,
    why          text NOT NULL,        -- released, withdrawn, expired, broken, done, failed, deadlocked, refused
    broken_by    text,
    reason       text,
    until_at     bigint NOT NULL,
    PRIMARY KEY (lock_key, attempt)
);
CREATE INDEX holdfast_ended_by_time ON holdfast_ended (until_at);

-- How operations ended, remembered for a while: those who waited ask.
CREATE TABLE holdfast_outcomes (
    lock_key     text COLLATE "C" NOT NULL,
    token        bigint NOT NULL,
    succeeded    boolean NOT NULL,
    text         text NOT NULL,        -- the result or the failures, as JSON
    until_at     bigint NOT NULL,
    PRIMARY KEY (lock_key, token)
);
CREATE INDEX holdfast_outcomes_by_time ON holdfast_outcomes (until_at);

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
    feed         bigint,               -- its place in the order of all events; NULL: nobody has watched yet
    PRIMARY KEY (lock_key, number, at)
) PARTITION BY RANGE (at);
CREATE INDEX holdfast_history_by_time ON holdfast_history (at);
CREATE INDEX holdfast_history_by_feed ON holdfast_history (feed) WHERE feed IS NOT NULL;
CREATE INDEX holdfast_history_unplaced ON holdfast_history (at, lock_key, number) WHERE feed IS NULL;
CREATE TABLE holdfast_history_rest PARTITION OF holdfast_history DEFAULT;

-- Whoever gives events their places has this row to himself meanwhile.
CREATE TABLE holdfast_feed (
    id           integer PRIMARY KEY CHECK (id = 1),
    last         bigint NOT NULL       -- the place of the last event that has one
);

-- Who may ask a server what. Not the secret of a token, only its digest.
CREATE TABLE holdfast_access (
    id           text COLLATE "C" PRIMARY KEY,
    name         text NOT NULL,        -- of whoever has it
    digest       text NOT NULL,        -- SHA-256 of the secret, in hexadecimal
    rights       text NOT NULL,        -- JSON: a list of verb:pattern
    created_at   bigint NOT NULL,
    expires_at   bigint                -- NULL: until it is revoked
);
CREATE INDEX holdfast_access_by_time ON holdfast_access (expires_at);

-- Who has joined a cluster. Claims write it often, and change no column that has an index.
CREATE TABLE holdfast_instances (
    id           text COLLATE "C" PRIMARY KEY,
    name         text COLLATE "C" NOT NULL,
    host         text NOT NULL,
    pid          bigint NOT NULL,
    address      text COLLATE "C" NOT NULL,    -- where it is signalled
    version      text NOT NULL,
    capacity     bigint NOT NULL,      -- how much work it can have at a time
    state        text COLLATE "C" NOT NULL,    -- alive, draining, left, dead
    joined_at    bigint NOT NULL,
    beat_at      bigint NOT NULL,
    expires_at   bigint NOT NULL,      -- alive or draining: from then on it is dead, whoever notices; left: when it did
    claims       bigint NOT NULL DEFAULT 0,    -- the number of its last claim
    load         bigint NOT NULL DEFAULT 0,        -- how much work it has at most: less may have ended since; spares claims to count
    asked_at     bigint NOT NULL,      -- when that was
    wants        text COLLATE "C"      -- types of work, with a line break before and behind each; NULL: none
) WITH (fillfactor = 70);
CREATE INDEX holdfast_instances_by_state ON holdfast_instances (state, expires_at);

-- What is to be done, and by whom it is done. Who has the lease of its key has the work: the rest is for looking at.
CREATE TABLE holdfast_work (
    work_key     text COLLATE "C" PRIMARY KEY,     -- the lock's
    type         text COLLATE "C" NOT NULL,    -- the key up to the first colon
    state        text COLLATE "C" NOT NULL,    -- offered, assigned, completed, failed
    due_at       bigint NOT NULL,      -- offered: to be claimed from then on; assigned: to be looked at; else: when it ended
    data         text NOT NULL,        -- JSON
    text         text NOT NULL,        -- the result as JSON, or what went wrong; empty: nothing yet
    tries        bigint NOT NULL DEFAULT 0,
    max_tries    bigint NOT NULL,      -- 0: no limit
    instance     text COLLATE "C" NOT NULL DEFAULT '', -- that has it, or had it last
    attempt      text COLLATE "C" NOT NULL DEFAULT '', -- of its lease, or of the last
    token        bigint NOT NULL DEFAULT 0,
    claim        bigint NOT NULL DEFAULT 0,    -- the number of the claim that took it
    offered_at   bigint NOT NULL,
    assigned_at  bigint
);
CREATE INDEX holdfast_work_by_instance ON holdfast_work (instance, state, work_key);
-- Both in words that only statements meant for them use, as above.
CREATE INDEX holdfast_work_by_due ON holdfast_work (state, type, due_at, work_key) WHERE coalesce(state, '') <> 'completed';
CREATE INDEX holdfast_work_by_end ON holdfast_work (due_at) WHERE coalesce(state, '') IN ('completed', 'failed');

INSERT INTO holdfast_feed (id, last) VALUES (1, 0);
INSERT INTO holdfast_meta (id, version, token_floor, store_id) VALUES (1, 1, 0, gen_random_uuid()::text);
