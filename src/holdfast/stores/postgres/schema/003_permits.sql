-- holdfast on PostgreSQL, version 3: joining the queue of a full semaphore, and passing one permit on to the next, as one
-- call each. All that is said of the functions in 002 is true of these. They are for semaphores of which each permit is
-- held by itself. The notes are then the same text as the terms of each hold, and there are as many holds as permits.

DO $make$
DECLARE
    here text := (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'holdfast_meta'::regclass);
BEGIN
    EXECUTE replace($join$
CREATE FUNCTION @.holdfast_join_full(
    a_key text, an_attempt text, an_owner text, an_instance text, a_host text, a_pid bigint,
    a_claim bigint, a_patience bigint, the_notes text, the_terms text, a_now bigint,
    -- Who was granted a permit first, when the first permit ends, how many wait now, what time it is; and whether the
    -- owner who joins holds anything at all.
    OUT holder text, OUT its_host text, OUT its_pid bigint, OUT its_token bigint, OUT since bigint,
    OUT is_claimed smallint, OUT until_at bigint, OUT place integer, OUT at bigint, OUT has_any boolean)
RETURNS SETOF record LANGUAGE plpgsql AS $body$
#variable_conflict error
DECLARE
    ticket bigint;
    alike boolean;
BEGIN
    PERFORM FROM @.holdfast_locks WHERE lock_key = a_key FOR NO KEY UPDATE;
    at := coalesce(a_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    SELECT min(h.expires_at), min(h.token), bool_and(h.terms IS NOT DISTINCT FROM the_notes AND h.attempt <> an_attempt)
      INTO until_at, its_token, alike FROM @.holdfast_holds AS h WHERE h.lock_key = a_key;
    UPDATE @.holdfast_locks AS l
       SET waiters = l.waiters + 1, next_ticket = l.next_ticket + 1
     WHERE l.lock_key = a_key AND alike AND until_at > at
       AND l.notes = the_notes AND l.notes = '{"mode":"permits","permits":' || l.holds || '}'
       AND l.last_attempt IS DISTINCT FROM an_attempt
       AND NOT EXISTS (SELECT FROM @.holdfast_ended AS e
                        WHERE e.lock_key = a_key AND e.attempt = an_attempt AND e.until_at > at)
       AND NOT EXISTS (SELECT FROM @.holdfast_tickets AS t WHERE t.lock_key = a_key AND t.attempt = an_attempt)
       AND coalesce((SELECT t.expires_at FROM @.holdfast_tickets AS t WHERE t.lock_key = a_key
                      ORDER BY t.number LIMIT 1) > at, true)
    RETURNING l.owner, l.host, l.pid, l.granted_at, l.claimed, l.waiters, l.next_ticket - 1
         INTO holder, its_host, its_pid, since, is_claimed, place, ticket;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO @.holdfast_tickets
           (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at, terms)
    VALUES (a_key, ticket, an_attempt, an_owner, an_instance, a_host, a_pid, a_claim, at, at + a_patience, the_terms);
    has_any := EXISTS (SELECT FROM @.holdfast_locks AS l WHERE l.owner = an_owner AND coalesce(l.owner, '') <> '')
            OR EXISTS (SELECT FROM @.holdfast_holds AS h WHERE h.owner = an_owner);
    -- As for a plain lock: to lose it in a crash costs the place in the queue.
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN NEXT;
END $body$
$join$, '@', here);

    EXECUTE replace($pass$
CREATE FUNCTION @.holdfast_pass_permit(
    a_key text, an_attempt text, a_token bigint, a_memory bigint, a_now bigint,
    -- Who has it now, under which token, since when and for how long; when the first of all permits ends; and who is
    -- head of the queue then, if anybody.
    OUT winner text, OUT its_instance text, OUT its_attempt text, OUT its_token bigint, OUT at bigint, OUT lasts bigint,
    OUT first_end bigint, OUT next_instance text, OUT next_attempt text, OUT next_claim bigint)
RETURNS SETOF record LANGUAGE plpgsql AS $body$
#variable_conflict error
DECLARE
    theirs text;
    last_end bigint;
    good boolean;
    one record;
    two record;
    queue CURSOR FOR SELECT t.number, t.attempt, t.owner, t.instance, t.host, t.pid, t.claim, t.expires_at, t.terms
                       FROM @.holdfast_tickets AS t WHERE t.lock_key = a_key ORDER BY t.number LIMIT 2;
BEGIN
    -- Who updates the row is waited for. A fence is not: while a transaction has one, the token may not be changed.
    PERFORM FROM @.holdfast_locks WHERE lock_key = a_key FOR NO KEY UPDATE;
    SELECT l.notes, l.token + 1 INTO theirs, its_token FROM @.holdfast_locks AS l
     WHERE l.lock_key = a_key AND l.holds > 1 AND l.notes = '{"mode":"permits","permits":' || l.holds || '}'
       FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    at := coalesce(a_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    SELECT bool_and(h.terms IS NOT DISTINCT FROM theirs AND h.expires_at > at)
           AND bool_or(h.attempt = an_attempt AND h.token = a_token),
           min(h.expires_at) FILTER (WHERE h.attempt <> an_attempt), max(h.expires_at) FILTER (WHERE h.attempt <> an_attempt)
      INTO good, first_end, last_end FROM @.holdfast_holds AS h WHERE h.lock_key = a_key;
    IF good IS NOT TRUE THEN
        RETURN;
    END IF;
    OPEN queue;
    FETCH queue INTO one;
    FETCH queue INTO two;
    CLOSE queue;
    -- Who is head then waits for the first permit, if it wants one. What it waits for otherwise, the rules know.
    IF one.number IS NULL OR one.terms IS DISTINCT FROM theirs OR one.expires_at <= at
       OR (two.number IS NOT NULL AND (two.expires_at <= at OR two.terms IS NULL OR two.terms NOT LIKE '{"mode":"permits",%'))
    THEN
        RETURN;
    END IF;
    its_token := greatest(its_token, at);
    -- The row that counts both comes last: who reads these writes in their order sees one step.
    DELETE FROM @.holdfast_tickets AS t WHERE t.lock_key = a_key AND t.number = one.number;
    INSERT INTO @.holdfast_ended AS e (lock_key, attempt, why, until_at)
    VALUES (a_key, an_attempt, 'released', at + a_memory)
        ON CONFLICT (lock_key, attempt) DO UPDATE
       SET why = excluded.why, broken_by = NULL, reason = NULL, until_at = excluded.until_at;
    -- One hold becomes the other: fewer writes than to delete one and to make one.
    UPDATE @.holdfast_holds AS h
       SET attempt = one.attempt, owner = one.owner, token = its_token, claimed = 0, expires_at = at + one.claim,
           granted_at = at, instance = one.instance, host = one.host, pid = one.pid
     WHERE h.lock_key = a_key AND h.attempt = an_attempt;
    UPDATE @.holdfast_locks AS l
       SET token = its_token, waiters = l.waiters - 1, expires_at = greatest(last_end, at + one.claim),
           owner = f.owner, granted_at = f.granted_at, instance = f.instance, host = f.host, pid = f.pid, claimed = f.claimed
      FROM (SELECT h.owner, h.granted_at, h.instance, h.host, h.pid, h.claimed FROM @.holdfast_holds AS h
             WHERE h.lock_key = a_key ORDER BY h.token, h.granted_at, h.attempt LIMIT 1) AS f
     WHERE l.lock_key = a_key;
    winner := one.owner;
    its_instance := one.instance;
    its_attempt := one.attempt;
    lasts := one.claim;
    first_end := least(first_end, at + one.claim);
    next_instance := two.instance;
    next_attempt := two.attempt;
    next_claim := two.claim;
    RETURN NEXT;
END $body$
$pass$, '@', here);
    EXECUTE replace('REVOKE ALL ON FUNCTION'
        ' @.holdfast_join_full(text, text, text, text, text, bigint, bigint, bigint, text, text, bigint),'
        ' @.holdfast_pass_permit(text, text, bigint, bigint, bigint) FROM PUBLIC', '@', here);
END $make$;

UPDATE holdfast_meta SET version = 3 WHERE id = 1;
