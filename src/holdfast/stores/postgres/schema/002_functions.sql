-- holdfast on PostgreSQL, version 2: joining a queue and handing over, as one call each. They are the fast paths of
-- what stores/sql/rules does, for plain terms only, and do it wholly or not at all: no row, and nothing has happened.
-- Each statement of a function sees what the ones before it had to wait for. So the row of the lock is locked first.
--
-- Names are written out (@ stands for the schema that the tables are in): whatever the search path of a session is,
-- these are about their own tables. They run with the rights of their caller. Nobody has them but who was granted.

DO $make$
DECLARE
    here text := (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'holdfast_meta'::regclass);
BEGIN
    EXECUTE replace($join$
CREATE FUNCTION @.holdfast_join(
    a_key text, an_attempt text, an_owner text, an_instance text, a_host text, a_pid bigint,
    a_claim bigint, a_patience bigint, a_now bigint,
    -- Who has the lock, how many wait now, what time it is; and whether the owner who joins holds anything at all.
    OUT holder text, OUT its_host text, OUT its_pid bigint, OUT its_token bigint, OUT since bigint,
    OUT is_claimed smallint, OUT until_at bigint, OUT place integer, OUT at bigint, OUT has_any boolean)
RETURNS SETOF record LANGUAGE plpgsql AS $body$
#variable_conflict error
DECLARE
    ticket bigint;
BEGIN
    PERFORM FROM @.holdfast_locks WHERE lock_key = a_key FOR NO KEY UPDATE;
    at := coalesce(a_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    UPDATE @.holdfast_locks AS l
       SET waiters = l.waiters + 1, next_ticket = l.next_ticket + 1
     WHERE l.lock_key = a_key AND l.owner <> an_owner AND l.holds = 0 AND l.attempt IS NOT NULL AND l.notes IS NULL
       AND l.expires_at > at AND l.last_attempt IS DISTINCT FROM an_attempt
       AND NOT EXISTS (SELECT FROM @.holdfast_ended AS e
                        WHERE e.lock_key = a_key AND e.attempt = an_attempt AND e.until_at > at)
       AND NOT EXISTS (SELECT FROM @.holdfast_tickets AS t WHERE t.lock_key = a_key AND t.attempt = an_attempt)
       AND coalesce((SELECT t.expires_at FROM @.holdfast_tickets AS t WHERE t.lock_key = a_key
                      ORDER BY t.number LIMIT 1) > at, true)
    RETURNING l.owner, l.host, l.pid, l.token, l.granted_at, l.claimed, l.expires_at, l.waiters, l.next_ticket - 1
         INTO holder, its_host, its_pid, its_token, since, is_claimed, until_at, place, ticket;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO @.holdfast_tickets
           (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at)
    VALUES (a_key, ticket, an_attempt, an_owner, an_instance, a_host, a_pid, a_claim, at, at + a_patience);
    has_any := EXISTS (SELECT FROM @.holdfast_locks AS l WHERE l.owner = an_owner AND coalesce(l.owner, '') <> '')
            OR EXISTS (SELECT FROM @.holdfast_holds AS h WHERE h.owner = an_owner);
    -- It need not reach the disk at once: to lose it in a crash costs the place in the queue.
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN NEXT;
END $body$
$join$, '@', here);

    EXECUTE replace($hand_over$
CREATE FUNCTION @.holdfast_hand_over(
    a_key text, an_attempt text, a_token bigint, a_now bigint,
    -- Who has it now, under which token, since when and for how long.
    OUT winner text, OUT its_instance text, OUT its_attempt text, OUT its_token bigint, OUT at bigint, OUT lasts bigint)
RETURNS SETOF record LANGUAGE plpgsql AS $body$
#variable_conflict error
DECLARE
    ends bigint;
    one record;
    two record;
    queue CURSOR FOR SELECT t.number, t.attempt, t.owner, t.instance, t.host, t.pid, t.claim, t.expires_at, t.terms
                       FROM @.holdfast_tickets AS t WHERE t.lock_key = a_key ORDER BY t.number LIMIT 2;
BEGIN
    -- Who updates the row is waited for. A fence is not: while a transaction has one, the token may not be changed.
    PERFORM FROM @.holdfast_locks WHERE lock_key = a_key FOR NO KEY UPDATE;
    SELECT l.expires_at INTO ends FROM @.holdfast_locks AS l
     WHERE l.lock_key = a_key AND l.attempt = an_attempt AND l.token = a_token AND l.holds = 0 AND l.notes IS NULL
       FOR UPDATE SKIP LOCKED;
    at := coalesce(a_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    IF NOT FOUND OR ends <= at THEN
        RETURN;
    END IF;
    OPEN queue;
    FETCH queue INTO one;
    FETCH queue INTO two;
    CLOSE queue;
    -- The second in the queue has to be told if the lease of the first ends before its next heartbeat.
    IF one.number IS NULL OR one.terms IS NOT NULL OR one.expires_at <= at
       OR two.expires_at <= at OR two.claim > one.claim THEN
        RETURN;
    END IF;
    UPDATE @.holdfast_locks AS l
       SET token = greatest(l.token + 1, at), owner = one.owner, attempt = one.attempt, claimed = 0,
           last_attempt = an_attempt, granted_at = at, expires_at = at + one.claim,
           instance = one.instance, host = one.host, pid = one.pid, waiters = l.waiters - 1
     WHERE l.lock_key = a_key
    RETURNING l.owner, l.instance, l.attempt, l.token, one.claim
         INTO winner, its_instance, its_attempt, its_token, lasts;
    DELETE FROM @.holdfast_tickets AS t WHERE t.lock_key = a_key AND t.number = one.number;
    RETURN NEXT;
END $body$
$hand_over$, '@', here);
    EXECUTE replace('REVOKE ALL ON FUNCTION'
        ' @.holdfast_join(text, text, text, text, text, bigint, bigint, bigint, bigint),'
        ' @.holdfast_hand_over(text, text, bigint, bigint) FROM PUBLIC', '@', here);
END $make$;

UPDATE holdfast_meta SET version = 2 WHERE id = 1;
