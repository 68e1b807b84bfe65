-- holdfast on MySQL and MariaDB, version 1. Times are microseconds since the epoch, by the database's clock.
--
-- Names are bytes: collations would make one lock of several. A change of tables commits by itself here, so every
-- step can be done again, and holdfast_meta comes last: without it there are no tables of ours.

-- One row a key. A hold on plain terms that is the only one lives in this row alone, so that taking and releasing a
-- free lock is one statement on one row; all others are in holdfast_holds. A lock that is shut has an owner and no hold.
CREATE TABLE IF NOT EXISTS holdfast_locks (
    lock_key     VARBINARY(1020) NOT NULL,
    token        BIGINT NOT NULL,      -- highest ever granted; 0: never granted yet, made only to be locked
    owner        VARBINARY(1020),      -- of the hold that was granted first; NULL: free
    attempt      VARBINARY(1100),      -- of the only hold; NULL when free or shut, or holds > 0
    claimed      TINYINT NOT NULL DEFAULT 1,
    expires_at   BIGINT NOT NULL,      -- of the last hold, or of being shut; of a free lock: when it became free
    granted_at   BIGINT NOT NULL,
    instance     VARBINARY(255) NOT NULL,      -- of the holder
    host         VARBINARY(1020) NOT NULL,
    pid          BIGINT NOT NULL,
    last_attempt VARBINARY(1100),      -- whose release freed it last
    holds        INT NOT NULL DEFAULT 0,       -- rows in holdfast_holds
    waiters      INT NOT NULL DEFAULT 0,       -- rows in holdfast_tickets
    next_ticket  BIGINT NOT NULL DEFAULT 1,
    events       BIGINT,               -- the number of its last event; NULL: to be looked up in the history
    notes        MEDIUMBLOB,           -- JSON: capacity, failures and the like; NULL: nothing
    -- There are no partial indexes. These two are empty where there is nothing to find.
    held_until   BIGINT GENERATED ALWAYS AS (IF(owner IS NULL, NULL, expires_at)) STORED,
    handed_to    VARBINARY(255) GENERATED ALWAYS AS
                     (IF(claimed = 0 AND attempt IS NOT NULL, substring_index(instance, '/', 1), NULL)) STORED,
    PRIMARY KEY (lock_key),
    -- A fence locks this index's record alone. Then renewing passes, which changes only the row; and a grant, which
    -- changes the token and so this record, waits for the fencing transaction. In a transaction at REPEATABLE READ it
    -- locks the gap before the record as well. So tokens come first: new ones are larger than all there are, and never
    -- fall into a gap. Keys would.
    UNIQUE KEY by_token (token, lock_key),
    KEY by_owner (owner, lock_key),
    KEY by_expiry (held_until),
    KEY by_winner (handed_to)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Nobody's lock. In by_token it stands between the rows that were never granted and all others: a fence of the lowest
-- token would else lock the gap into which new rows of the first kind go.
INSERT INTO holdfast_locks (lock_key, token, expires_at, granted_at, instance, host, pid)
VALUES ('', 1, 0, 0, '', '', 0) ON DUPLICATE KEY UPDATE lock_key = lock_key;

CREATE TABLE IF NOT EXISTS holdfast_holds (
    lock_key     VARBINARY(1020) NOT NULL,
    attempt      VARBINARY(1100) NOT NULL,
    owner        VARBINARY(1020) NOT NULL,
    token        BIGINT NOT NULL,      -- of its lease
    terms        VARBINARY(1000),      -- JSON; NULL: plain
    claimed      TINYINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    granted_at   BIGINT NOT NULL,
    instance     VARBINARY(255) NOT NULL,
    host         VARBINARY(1020) NOT NULL,
    pid          BIGINT NOT NULL,
    PRIMARY KEY (lock_key, attempt),
    KEY by_owner (owner, lock_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS holdfast_tickets (
    lock_key     VARBINARY(1020) NOT NULL,
    number       BIGINT NOT NULL,      -- the order of the queue
    attempt      VARBINARY(1100) NOT NULL,
    owner        VARBINARY(1020) NOT NULL,
    instance     VARBINARY(255) NOT NULL,
    host         VARBINARY(1020) NOT NULL,
    pid          BIGINT NOT NULL,
    claim        BIGINT NOT NULL,      -- microseconds the winner has to claim a hand-over
    queued_at    BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    terms        VARBINARY(1000),      -- JSON; NULL: plain
    PRIMARY KEY (lock_key, number),
    UNIQUE KEY by_attempt (lock_key, attempt),
    KEY by_owner (owner, lock_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Attempts that are over, remembered for a while: a late copy of their Acquire must find nothing to take.
CREATE TABLE IF NOT EXISTS holdfast_ended (
    lock_key     VARBINARY(1020) NOT NULL,
    attempt      VARBINARY(1100) NOT NULL,
    why          VARBINARY(20) NOT NULL,       -- released, withdrawn, expired, broken, done, failed, deadlocked, refused
    broken_by    VARBINARY(1020),
    reason       MEDIUMBLOB,
    until_at     BIGINT NOT NULL,
    PRIMARY KEY (lock_key, attempt),
    KEY by_time (until_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- How operations ended, remembered for a while: those who waited ask.
CREATE TABLE IF NOT EXISTS holdfast_outcomes (
    lock_key     VARBINARY(1020) NOT NULL,
    token        BIGINT NOT NULL,
    succeeded    TINYINT NOT NULL,
    text         MEDIUMBLOB NOT NULL,  -- the result or the failures, as JSON
    until_at     BIGINT NOT NULL,
    PRIMARY KEY (lock_key, token),
    KEY by_time (until_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What happened, by weeks: sweeping makes partitions ahead, out of p_rest, and drops old ones.
CREATE TABLE IF NOT EXISTS holdfast_history (
    lock_key     VARBINARY(1020) NOT NULL,
    number       BIGINT NOT NULL,      -- per key, in order
    kind         VARBINARY(20) NOT NULL,
    at           BIGINT NOT NULL,
    token        BIGINT NOT NULL,
    owner        VARBINARY(1020),
    caused_by    VARBINARY(1020),
    reason       MEDIUMBLOB,
    feed         BIGINT,               -- its place in the order of all events; NULL: nobody has watched yet
    PRIMARY KEY (lock_key, number, at),
    KEY by_time (at),
    KEY by_feed (feed, at, lock_key, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
PARTITION BY RANGE (at) (
    PARTITION p_old VALUES LESS THAN (1767225600000000),
    PARTITION p_rest VALUES LESS THAN MAXVALUE
);

-- Signals that say more than the locks themselves do. Their listener reads and deletes them at once.
CREATE TABLE IF NOT EXISTS holdfast_signals (
    id           BIGINT NOT NULL AUTO_INCREMENT,
    instance     VARBINARY(255) NOT NULL,      -- who listens
    sent_to      VARBINARY(255) NOT NULL DEFAULT '',   -- for whom behind it, if its address says so
    kind         VARBINARY(20) NOT NULL,
    lock_key     VARBINARY(1020) NOT NULL,
    attempt      VARBINARY(1100) NOT NULL,
    expires_in   BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (id),
    KEY by_instance (instance),
    KEY by_time (at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Who has joined a cluster.
CREATE TABLE IF NOT EXISTS holdfast_instances (
    id           VARBINARY(1020) NOT NULL,
    name         VARBINARY(1020) NOT NULL,
    host         VARBINARY(1020) NOT NULL,
    pid          BIGINT NOT NULL,
    address      VARBINARY(255) NOT NULL,      -- where it is signalled
    version      VARBINARY(1020) NOT NULL,
    capacity     BIGINT NOT NULL,      -- how much work it can have at a time
    state        VARBINARY(20) NOT NULL,       -- alive, draining, left, dead
    joined_at    BIGINT NOT NULL,
    beat_at      BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    claims       BIGINT NOT NULL DEFAULT 0,    -- the number of the last one
    asked_at     BIGINT NOT NULL,      -- when that was
    wants        MEDIUMBLOB,           -- the types of work it waits for, each between two ends of lines
    PRIMARY KEY (id),
    KEY by_state (state, expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What is to be done for a key. Whether it is assigned, the lock of the key says: only its lease counts.
CREATE TABLE IF NOT EXISTS holdfast_work (
    work_key     VARBINARY(1020) NOT NULL,
    type         VARBINARY(1020) NOT NULL,
    state        VARBINARY(20) NOT NULL,       -- offered, assigned, completed, failed
    due_at       BIGINT NOT NULL,      -- offered: to be claimed; assigned: to be looked at; else: when it ended
    data         MEDIUMBLOB NOT NULL,  -- JSON
    text         MEDIUMBLOB NOT NULL,  -- the result as JSON, or what went wrong
    tries        BIGINT NOT NULL,
    max_tries    BIGINT NOT NULL,      -- 0: no limit
    instance     VARBINARY(1020) NOT NULL,     -- that has it, or had it last
    attempt      VARBINARY(1100) NOT NULL,
    token        BIGINT NOT NULL,
    claim        BIGINT NOT NULL,      -- the number of the claim that took it
    offered_at   BIGINT NOT NULL,
    assigned_at  BIGINT,
    -- Empty as long as there is something to be done, so that a claim need not change its index.
    ended_at     BIGINT GENERATED ALWAYS AS (IF(state IN ('completed', 'failed'), due_at, NULL)) STORED,
    PRIMARY KEY (work_key),
    KEY by_due (state, type, due_at, work_key),
    KEY by_instance (instance, state, work_key),
    KEY by_end (ended_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Who may ask a server what. Not the secret of a token, only its digest.
CREATE TABLE IF NOT EXISTS holdfast_access (
    id           VARBINARY(255) NOT NULL,
    name         VARBINARY(1020) NOT NULL,     -- of whoever has it
    digest       VARBINARY(255) NOT NULL,      -- SHA-256 of the secret, in hexadecimal
    rights       MEDIUMBLOB NOT NULL,  -- JSON: a list of verb:pattern
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,               -- NULL: until it is revoked
    PRIMARY KEY (id),
    KEY by_time (expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Whoever gives events their places has this row to himself meanwhile.
CREATE TABLE IF NOT EXISTS holdfast_feed (
    id           INT NOT NULL,
    last         BIGINT NOT NULL,      -- the place of the last event that has one
    PRIMARY KEY (id)
) ENGINE = InnoDB;

INSERT INTO holdfast_feed (id, last) VALUES (1, 0) ON DUPLICATE KEY UPDATE id = id;

CREATE TABLE IF NOT EXISTS holdfast_meta (
    id           INT NOT NULL,
    version      INT NOT NULL,
    token_floor  BIGINT NOT NULL,      -- at least every token of a row that was swept away
    store_id     VARBINARY(36) NOT NULL,       -- tells these tables from all others
    PRIMARY KEY (id)
) ENGINE = InnoDB;

INSERT INTO holdfast_meta (id, version, token_floor, store_id) VALUES (1, 1, 0, UUID());
