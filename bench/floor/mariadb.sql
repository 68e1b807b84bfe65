-- The smallest tables on which a durable FIFO lock with leases and tokens can be kept. What follows a crash
-- is left out: it costs nothing while nobody crashes.
CREATE TABLE floor_locks (
    lock_key VARBINARY(100) PRIMARY KEY,
    token BIGINT NOT NULL DEFAULT 0,
    holder VARBINARY(100),
    expires_at BIGINT NOT NULL DEFAULT 0,
    waiters INT NOT NULL DEFAULT 0,
    next_ticket BIGINT NOT NULL DEFAULT 1,
    held_ticket BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

CREATE TABLE floor_tickets (
    lock_key VARBINARY(100) NOT NULL,
    number BIGINT NOT NULL,
    attempt VARBINARY(100) NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (lock_key, number)
) ENGINE = InnoDB;

INSERT INTO floor_locks (lock_key) VALUES ('one');

-- The token and our ticket. Each ticket has a named lock of the server's, which who is next waits for.
CREATE PROCEDURE floor_acquire(k VARBINARY(100), a VARBINARY(100))
BEGIN
    DECLARE now, granted, mine, before_us BIGINT;
    DECLARE holding VARBINARY(100);
    DECLARE queue INT;
    DECLARE name VARBINARY(64);
    START TRANSACTION;
    SELECT token, holder, waiters, next_ticket, held_ticket INTO granted, holding, queue, mine, before_us
      FROM floor_locks WHERE lock_key = k FOR UPDATE;
    SET now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    DO GET_LOCK(concat('floor:', mine), 0);
    IF holding IS NULL THEN
        SET granted = greatest(granted + 1, now);
        UPDATE floor_locks SET token = granted, holder = a, expires_at = now + 30000000, held_ticket = mine,
               next_ticket = mine + 1
         WHERE lock_key = k;
        COMMIT;
    ELSE
        IF queue > 0 THEN SET before_us = mine - 1; END IF; -- nobody leaves the queue here
        UPDATE floor_locks SET waiters = queue + 1, next_ticket = mine + 1 WHERE lock_key = k;
        INSERT INTO floor_tickets VALUES (k, mine, a, now + 15000000);
        COMMIT;
        SET name = concat('floor:', before_us), granted = NULL;
        DO GET_LOCK(name, 10);
        DO RELEASE_LOCK(name);
        SELECT token INTO granted FROM floor_locks WHERE lock_key = k AND holder = a;
    END IF;
    SELECT granted, mine;
END;

-- What we held, and who is next.
CREATE PROCEDURE floor_release(k VARBINARY(100), a VARBINARY(100), t BIGINT, mine BIGINT)
BEGIN
    DECLARE now, winner BIGINT DEFAULT 0;
    DECLARE queue INT;
    DECLARE winning VARBINARY(100);
    START TRANSACTION;
    SELECT waiters INTO queue FROM floor_locks WHERE lock_key = k AND holder = a AND token = t FOR UPDATE;
    SET now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    IF queue > 0 THEN
        SELECT number, attempt INTO winner, winning FROM floor_tickets WHERE lock_key = k ORDER BY number LIMIT 1;
        DELETE FROM floor_tickets WHERE lock_key = k AND number = winner;
        UPDATE floor_locks SET token = greatest(token + 1, now), holder = winning, expires_at = now + 5000000,
               waiters = waiters - 1, held_ticket = winner
         WHERE lock_key = k;
    ELSE
        UPDATE floor_locks SET holder = NULL WHERE lock_key = k AND holder = a;
    END IF;
    COMMIT;
    DO RELEASE_LOCK(concat('floor:', mine));
    SELECT queue, winner;
END;
