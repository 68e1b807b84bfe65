-- The smallest tables on which a durable FIFO lock with leases and tokens can be kept. What follows a crash
-- is left out: it costs nothing while nobody crashes.
CREATE TABLE floor_locks (
    lock_key text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL DEFAULT 0,
    holder text,
    expires_at bigint NOT NULL DEFAULT 0,
    waiters int NOT NULL DEFAULT 0,
    next_ticket bigint NOT NULL DEFAULT 1
) WITH (fillfactor = 50);

CREATE TABLE floor_tickets (
    lock_key text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    attempt text NOT NULL,
    instance text NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (lock_key, number)
);

INSERT INTO floor_locks (lock_key) VALUES ('one');

-- The token; 0: queued; NULL: ask again. A ticket need not be on the disk: who loses it asks again.
CREATE FUNCTION floor_acquire(k text, a text, i text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    granted bigint;
    ticket bigint;
BEGIN
    UPDATE floor_locks SET waiters = waiters + 1, next_ticket = next_ticket + 1
     WHERE lock_key = k AND holder IS NOT NULL AND expires_at > now RETURNING next_ticket - 1 INTO ticket;
    IF FOUND THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        INSERT INTO floor_tickets VALUES (k, ticket, a, i, now + 15000000);
        RETURN 0;
    END IF;
    UPDATE floor_locks SET token = greatest(token + 1, now), holder = a, expires_at = now + 30000000
     WHERE lock_key = k AND holder IS NULL RETURNING token INTO granted;
    RETURN granted;
END $$;

-- 0: free now; NULL: not held. The grant is on the disk before the winner is told. A lock that is only freed
-- need not be: to lose that only delays the next holder.
CREATE FUNCTION floor_release(k text, a text, t bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    queue int;
    winner record;
    granted bigint;
BEGIN
    SELECT waiters INTO queue FROM floor_locks WHERE lock_key = k AND holder = a AND token = t FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF queue = 0 THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        UPDATE floor_locks SET holder = NULL WHERE lock_key = k;
        RETURN 0;
    END IF;
    DELETE FROM floor_tickets WHERE lock_key = k AND number = (
        SELECT number FROM floor_tickets WHERE lock_key = k ORDER BY number LIMIT 1)
    RETURNING attempt, instance INTO winner;
    now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    UPDATE floor_locks SET token = greatest(token + 1, now), holder = winner.attempt,
           expires_at = now + 5000000, waiters = waiters - 1
     WHERE lock_key = k RETURNING token INTO granted;
    PERFORM pg_notify(winner.instance, winner.attempt || chr(10) || granted);
    RETURN granted;
END $$;
