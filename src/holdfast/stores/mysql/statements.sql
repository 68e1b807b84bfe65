-- What holdfast sends to MySQL and MariaDB, beside the statements in stores/sql/statements.sql. To paste one into a console,
-- put in what the shorthands below stand for, and values for the other parameters. With that put in, this prints one:
-- python -m holdfast.stores.sql mysql acquire
--
-- :now is empty in production, and then the database's clock decides; tests pass a time. It is SYSDATE, read after a
-- lock was waited for: NOW stands still in a statement, and a lease could be born with its end in the past.
-- Everything runs at READ COMMITTED. SET works from left to right: no assignment reads a column that one before it
-- has changed. FORCE INDEX (PRIMARY) locks the row and leaves by_token alone, of which a fence may have a record.
--
-- :clock = coalesce(:now, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))
-- :began = coalesce(:now, CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED))
-- :primary = FORCE INDEX (PRIMARY)
-- :signalled = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
-- :full_notes = concat('{"mode":"permits","permits":', holds, '}')
-- :by_instance = FORCE INDEX (by_instance)
-- :by_state = FORCE INDEX (by_state)
-- :by_feed = FORCE INDEX (by_feed)
--
-- Lists come as JSON. Each is what a join begins with, so STRAIGHT_JOIN follows, with an index for the other table.
--
-- :listed_keys = JSON_TABLE(:keys, '$[*]' COLUMNS (
--           place FOR ORDINALITY, lock_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$'))
-- :listed_leases = JSON_TABLE(:leases, '$[*]' COLUMNS (
--           place INT PATH '$.place', lock_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key', ttl BIGINT PATH '$.ttl'))
-- :renewed_leases = JSON_TABLE(:leases, '$[*]' COLUMNS (
--           place INT PATH '$.place', lock_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key',
--           attempt VARCHAR(275) CHARACTER SET utf8mb4 PATH '$.attempt', token BIGINT PATH '$.token',
--           ends_at BIGINT PATH '$.end'))
-- :listed_works = JSON_TABLE(:works, '$[*]' COLUMNS (
--           place FOR ORDINALITY, lock_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key',
--           attempt VARCHAR(275) CHARACTER SET utf8mb4 PATH '$.attempt'))
-- :offered_keys = JSON_TABLE(@holdfast_works, '$[*]' COLUMNS (
--           place FOR ORDINALITY, work_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key'))
-- :offered_works = JSON_TABLE(@holdfast_works, '$[*]' COLUMNS (
--           place FOR ORDINALITY, work_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key',
--           type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.type', data MEDIUMTEXT CHARACTER SET utf8mb4 PATH '$.data',
--           max_tries BIGINT PATH '$.max_tries', delay BIGINT PATH '$.delay', at BIGINT PATH '$.at'))

-- name: acquire
-- The fast path: one row changed when granted, and the token is the answer's insert id. It takes only a lock that is
-- free with nobody waiting. No row: there is none yet, or the slow path. All fast paths are for plain terms, and keep
-- away from locks with notes. The attempt may have been ended while we waited for the row, so the subquery has to be
-- evaluated after that. Without l.token it would be a constant, read before: an attempt that was withdrawn meanwhile
-- was granted (seen).
UPDATE holdfast_locks AS l FORCE INDEX (PRIMARY)
   SET l.token      = LAST_INSERT_ID(greatest(l.token + 1, :clock)),
       l.granted_at = :clock,
       l.expires_at = :clock + :ttl,
       l.owner = :owner, l.attempt = :attempt, l.claimed = 1, l.instance = :instance, l.host = :host, l.pid = :pid
 WHERE l.lock_key = :key AND l.owner IS NULL AND l.waiters = 0 AND l.token > 0 AND NOT l.last_attempt <=> :attempt
   AND l.notes IS NULL
   AND (SELECT count(*) FROM holdfast_ended AS e
         WHERE e.lock_key = l.lock_key AND e.attempt = :attempt AND l.token > 0
           AND e.until_at > :clock) = 0;

-- name: acquire_new
-- The same for a key without a row, in the same round trip. A plain INSERT: IGNORE would cut a long key short. If
-- somebody else is faster, error 1062 says so.
INSERT INTO holdfast_locks (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
SELECT :key, LAST_INSERT_ID(greatest(m.token_floor + 1, :clock)),
       :owner, :attempt, :clock,
       :clock + :ttl, :instance, :host, :pid
  FROM holdfast_meta AS m
 WHERE m.id = 1
   AND NOT EXISTS (SELECT 1 FROM holdfast_locks WHERE lock_key = :key)
   AND NOT EXISTS (SELECT 1 FROM holdfast_ended WHERE lock_key = :key AND attempt = :attempt
                      AND until_at > :clock);

-- name: claim
-- The fast path of asking again for what was handed to us: one row changed if it still is ours, and for long (:long;
-- else the head of the queue may have to be told). No row: the slow path.
UPDATE holdfast_locks FORCE INDEX (PRIMARY)
   SET expires_at = :clock + :ttl,
       claimed = 1, instance = :instance, host = :host, pid = :pid, token = LAST_INSERT_ID(token)
 WHERE lock_key = :key AND attempt = :attempt AND claimed = 0 AND :long AND notes IS NULL AND expires_at > :clock;

-- name: release
-- The fast path: one row changed when the only hold was released and nobody waits. No row: the slow path.
UPDATE holdfast_locks FORCE INDEX (PRIMARY)
   SET last_attempt = attempt, owner = NULL, attempt = NULL, claimed = 1,
       expires_at = :clock
 WHERE lock_key = :key AND attempt = :attempt AND token = :token
   AND waiters = 0
   AND expires_at > :clock
   AND notes IS NULL;

-- name: join_queue
-- The fast path of joining a queue, in one round trip: a row with all in one column, because the driver takes longer for
-- a column than the server for the row. In the first line are the holder's pid, token, grant, claim and end, the place in
-- the queue, the time, and whether others wait for the owner; then the holder's host, and the rest is its name. Only
-- where there is nothing to settle: a plain lease and the head of the queue are alive. No row: the slow path. What is read
-- after the first lock is younger than it, at READ COMMITTED; many small reads are faster than one with subqueries.
-- Whether others wait for the owner is read after the commit: two who join each other's queues at once would not see each
-- other before.
BEGIN;
SET @holdfast_number = NULL, @holdfast_ended = NULL, @holdfast_head = NULL, @holdfast_wanted = 0;
SELECT next_ticket, owner, host, expires_at, concat_ws(' ', pid, token, granted_at, claimed, expires_at, waiters + 1)
  INTO @holdfast_number, @holdfast_owner, @holdfast_host, @holdfast_end, @holdfast_numbers
  FROM holdfast_locks FORCE INDEX (PRIMARY)
 WHERE lock_key = :key AND owner <> :owner AND holds = 0 AND attempt IS NOT NULL AND notes IS NULL
   AND NOT last_attempt <=> :attempt FOR UPDATE;
SET @holdfast_now = :clock;
SELECT 1 INTO @holdfast_ended FROM holdfast_ended WHERE lock_key = :key AND attempt = :attempt AND until_at > @holdfast_now;
SELECT 1 INTO @holdfast_ended FROM holdfast_tickets FORCE INDEX (by_attempt) WHERE lock_key = :key AND attempt = :attempt;
SELECT expires_at INTO @holdfast_head FROM holdfast_tickets FORCE INDEX (PRIMARY) WHERE lock_key = :key ORDER BY number LIMIT 1;
SET @holdfast_number = IF(@holdfast_end > @holdfast_now AND coalesce(@holdfast_head > @holdfast_now, 1)
                          AND @holdfast_ended IS NULL, @holdfast_number, NULL);
UPDATE holdfast_locks FORCE INDEX (PRIMARY) SET waiters = waiters + 1, next_ticket = next_ticket + 1
 WHERE lock_key = :key AND @holdfast_number IS NOT NULL;
INSERT INTO holdfast_tickets (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at)
SELECT :key, @holdfast_number, :attempt, :owner, :instance, :host, :pid, :claim, @holdfast_now, @holdfast_now + :patience
  FROM DUAL WHERE @holdfast_number IS NOT NULL;
COMMIT;
SELECT 1 INTO @holdfast_wanted FROM holdfast_locks FORCE INDEX (by_owner) WHERE owner = :owner AND waiters > 0 LIMIT 1;
SELECT 1 INTO @holdfast_wanted FROM holdfast_holds AS h FORCE INDEX (by_owner)
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = h.lock_key
 WHERE h.owner = :owner AND l.waiters > 0 LIMIT 1;
SELECT concat_ws('\n', concat_ws(' ', @holdfast_numbers, @holdfast_now, @holdfast_wanted), @holdfast_host, @holdfast_owner)
  FROM DUAL WHERE @holdfast_number IS NOT NULL;

-- name: hand_over
-- The fast path of a release with somebody waiting, in one round trip: a row with the winner, who is then woken. It is
-- in lines: token, grant and length; attempt; instance; the rest is the owner. Only where there is nothing else to settle
-- or to tell: one hold, both heads of the queue alive, the first on plain terms, no fence. No row: the slow path. What is
-- read after the first lock is younger than it, at READ COMMITTED; many small reads are faster than one with joins.
-- Everything is decided by SET: ROW_COUNT() of an UPDATE is -1 if its client has left meanwhile, and the COMMIT would keep
-- half (seen).
--
-- A winner may enter by this, so it has to learn of it after it has reached the disk. Others see a commit a moment
-- before that. So a named lock that is taken after the commit is the proof, and is kept until the next hand-over on this
-- connection: no table is needed, and the server forgets it in a crash.
BEGIN;
SET @holdfast_end = NULL, @holdfast_free = NULL, @holdfast_number = NULL, @holdfast_second = NULL;
SELECT expires_at INTO @holdfast_end
  FROM holdfast_locks FORCE INDEX (PRIMARY)
 WHERE lock_key = :key AND attempt = :attempt AND token = :token AND holds = 0 AND notes IS NULL FOR UPDATE;
SET @holdfast_now = :clock;
SELECT 1 INTO @holdfast_free FROM holdfast_locks FORCE INDEX (by_token)
 WHERE token = :token AND lock_key = :key FOR UPDATE SKIP LOCKED;
SELECT number, attempt, owner, instance, host, pid, claim, expires_at, terms
  INTO @holdfast_number, @holdfast_winner, @holdfast_owner, @holdfast_instance, @holdfast_host, @holdfast_pid,
       @holdfast_claim, @holdfast_head, @holdfast_terms
  FROM holdfast_tickets FORCE INDEX (PRIMARY) WHERE lock_key = :key ORDER BY number LIMIT 1;
SELECT expires_at > @holdfast_now AND claim <= @holdfast_claim INTO @holdfast_second
  FROM holdfast_tickets FORCE INDEX (PRIMARY) WHERE lock_key = :key ORDER BY number LIMIT 1 OFFSET 1;
SET @holdfast_number = IF(@holdfast_end > @holdfast_now AND @holdfast_free AND @holdfast_head > @holdfast_now
                          AND @holdfast_terms IS NULL AND coalesce(@holdfast_second, 1), @holdfast_number, NULL),
    @holdfast_token = greatest(:token + 1, @holdfast_now);
UPDATE holdfast_locks FORCE INDEX (PRIMARY)
   SET token = @holdfast_token, owner = @holdfast_owner, attempt = @holdfast_winner, claimed = 0,
       last_attempt = :attempt, granted_at = @holdfast_now, expires_at = @holdfast_now + @holdfast_claim,
       instance = @holdfast_instance, host = @holdfast_host, pid = @holdfast_pid, waiters = waiters - 1
 WHERE lock_key = :key AND @holdfast_number IS NOT NULL;
DELETE FROM holdfast_tickets WHERE lock_key = :key AND number = @holdfast_number;
COMMIT;
DO IF(@holdfast_proof IS NULL, 0, RELEASE_LOCK(@holdfast_proof));
SET @holdfast_proof = concat('holdfast ', @holdfast_token, ' ', left(sha1(concat(database(), '.holdfast_locks ', CAST(:key AS BINARY))), 32));
DO IF(@holdfast_number IS NULL, 0, GET_LOCK(@holdfast_proof, 0));
SELECT concat_ws('\n', concat_ws(' ', @holdfast_token, @holdfast_now, @holdfast_claim), @holdfast_winner, @holdfast_instance,
                 @holdfast_owner)
  FROM DUAL WHERE @holdfast_number IS NOT NULL;
KILL QUERY IS_USED_LOCK(left(concat('holdfast:', IF(@holdfast_number IS NULL, NULL,
                                                    nullif(substring_index(@holdfast_instance, '/', 1), :instance))), 64));

-- name: join_full
-- The fast path of joining the queue of a semaphore, as join_queue is for a plain lock. Only where there is nothing to
-- settle: each permit is held by itself, so nobody fits, whatever they take; no hold has ended, the head of the queue is
-- alive, and the notes say nothing else. (The terms of who takes one permit are the same text as such notes.) No row: the
-- slow path.
BEGIN;
SET @holdfast_ticket = NULL, @holdfast_ended = NULL, @holdfast_head = NULL, @holdfast_wanted = 0;
SELECT next_ticket, owner, host, pid, granted_at, claimed, waiters + 1
  INTO @holdfast_ticket, @holdfast_owner, @holdfast_host, @holdfast_pid, @holdfast_granted, @holdfast_claimed, @holdfast_place
  FROM holdfast_locks FORCE INDEX (PRIMARY)
 WHERE lock_key = :key AND notes = :notes AND notes = :full_notes AND NOT last_attempt <=> :attempt FOR UPDATE;
SET @holdfast_now = :clock;
SELECT min(expires_at), min(token), min(terms <=> :notes AND attempt <> :attempt)
  INTO @holdfast_end, @holdfast_token, @holdfast_single
  FROM holdfast_holds FORCE INDEX (PRIMARY) WHERE lock_key = :key;
SELECT 1 INTO @holdfast_ended FROM holdfast_ended WHERE lock_key = :key AND attempt = :attempt AND until_at > @holdfast_now;
SELECT 1 INTO @holdfast_ended FROM holdfast_tickets FORCE INDEX (by_attempt) WHERE lock_key = :key AND attempt = :attempt;
SELECT expires_at INTO @holdfast_head FROM holdfast_tickets FORCE INDEX (PRIMARY) WHERE lock_key = :key ORDER BY number LIMIT 1;
SET @holdfast_ticket = IF(@holdfast_single AND coalesce(@holdfast_head > @holdfast_now, 1) AND @holdfast_end > @holdfast_now
                          AND @holdfast_ended IS NULL, @holdfast_ticket, NULL);
UPDATE holdfast_locks FORCE INDEX (PRIMARY) SET next_ticket = next_ticket + 1, waiters = waiters + 1
 WHERE lock_key = :key AND @holdfast_ticket IS NOT NULL;
INSERT INTO holdfast_tickets (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at, terms)
SELECT :key, @holdfast_ticket, :attempt, :owner, :instance, :host, :pid, :claim, @holdfast_now, @holdfast_now + :patience, :terms
  FROM DUAL WHERE @holdfast_ticket IS NOT NULL;
COMMIT;
SELECT 1 INTO @holdfast_wanted FROM holdfast_holds AS h FORCE INDEX (by_owner)
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = h.lock_key
 WHERE h.owner = :owner AND l.waiters > 0 LIMIT 1;
SELECT 1 INTO @holdfast_wanted FROM holdfast_locks FORCE INDEX (by_owner) WHERE owner = :owner AND waiters > 0 LIMIT 1;
SELECT concat_ws('\n', concat_ws(' ', @holdfast_pid, @holdfast_token, @holdfast_granted, @holdfast_claimed, @holdfast_end,
                                 @holdfast_place, @holdfast_now, @holdfast_wanted), @holdfast_host, @holdfast_owner)
  FROM DUAL WHERE @holdfast_ticket IS NOT NULL;

-- name: pass_permit
-- The fast path of releasing one of several permits with somebody waiting, as hand_over is for a plain lock: a row with the
-- winner. It is in lines: token, grant, length, when the first of all holds ends, and how long the next head would have to
-- claim; attempt, instance; the next head's attempt and instance, which are empty if there is none; the rest is the owner.
-- Only where there is nothing else to settle: each permit is held by itself, so that exactly one is free then; no hold has
-- ended; the head of the queue wants one, the next one some, and both are alive; no fence. No row: the slow path. The row
-- that counts tickets and holds is written last: who reads the writes in their order sees one step.
--
-- Nothing in the lock's row shows the winner, so signals are written, for it and for a head that has to watch the holds
-- (see settlement.tell_head). They are part of the transaction, which spares a commit. The winner's says what
-- can be entered by, when the named lock proves it as in hand_over: the instant of the grant is its token as well, unless
-- the clock was set back, and then it says no length.
BEGIN;
SET @holdfast_notes = NULL, @holdfast_free = NULL, @holdfast_ticket = NULL, @holdfast_second = NULL, @holdfast_first = NULL,
    @holdfast_token = NULL, @holdfast_next = NULL, @holdfast_next_home = NULL, @holdfast_next_claim = NULL;
SELECT notes, token INTO @holdfast_notes, @holdfast_token
  FROM holdfast_locks FORCE INDEX (PRIMARY)
 WHERE lock_key = :key AND holds > 1 AND notes = :full_notes FOR UPDATE;
SET @holdfast_now = :clock;
SELECT 1 INTO @holdfast_free FROM holdfast_locks FORCE INDEX (by_token)
 WHERE token = @holdfast_token AND lock_key = :key FOR UPDATE SKIP LOCKED;
SELECT min(terms <=> @holdfast_notes AND expires_at > @holdfast_now), max(attempt = :attempt AND token = :token),
       min(IF(attempt = :attempt, NULL, token)), min(IF(attempt = :attempt, NULL, expires_at)),
       max(IF(attempt = :attempt, NULL, expires_at))
  INTO @holdfast_single, @holdfast_ours, @holdfast_first, @holdfast_end, @holdfast_last
  FROM holdfast_holds FORCE INDEX (PRIMARY) WHERE lock_key = :key;
SELECT number, attempt, owner, instance, host, pid, claim, terms <=> @holdfast_notes AND expires_at > @holdfast_now
  INTO @holdfast_ticket, @holdfast_winner, @holdfast_owner, @holdfast_home, @holdfast_host, @holdfast_pid,
       @holdfast_claim, @holdfast_head
  FROM holdfast_tickets FORCE INDEX (PRIMARY) WHERE lock_key = :key ORDER BY number LIMIT 1;
SELECT attempt, instance, claim, coalesce(terms LIKE '{"mode":"permits",%', 0) AND expires_at > @holdfast_now
  INTO @holdfast_next, @holdfast_next_home, @holdfast_next_claim, @holdfast_second
  FROM holdfast_tickets FORCE INDEX (PRIMARY) WHERE lock_key = :key ORDER BY number LIMIT 1 OFFSET 1;
SET @holdfast_ticket = IF(@holdfast_free AND @holdfast_single AND @holdfast_ours AND @holdfast_head
                          AND coalesce(@holdfast_second, 1), @holdfast_ticket, NULL),
    @holdfast_token = greatest(@holdfast_token + 1, @holdfast_now),
    @holdfast_end = least(@holdfast_end, @holdfast_now + @holdfast_claim),
    @holdfast_last = greatest(@holdfast_last, @holdfast_now + @holdfast_claim);
SELECT owner, granted_at, instance, host, pid, claimed
  INTO @holdfast_first_owner, @holdfast_first_granted, @holdfast_first_home, @holdfast_first_host, @holdfast_first_pid,
       @holdfast_first_claimed
  FROM holdfast_holds FORCE INDEX (PRIMARY) WHERE lock_key = :key AND token = @holdfast_first LIMIT 1;
DELETE FROM holdfast_tickets WHERE lock_key = :key AND number = @holdfast_ticket;
INSERT INTO holdfast_ended (lock_key, attempt, why, until_at)
SELECT :key, :attempt, 'released', @holdfast_now + 60000000 FROM DUAL WHERE @holdfast_ticket IS NOT NULL
    ON DUPLICATE KEY UPDATE why = 'released', broken_by = NULL, reason = NULL, until_at = @holdfast_now + 60000000;
UPDATE holdfast_holds FORCE INDEX (PRIMARY)
   SET attempt = @holdfast_winner, owner = @holdfast_owner, token = @holdfast_token, claimed = 0,
       expires_at = @holdfast_now + @holdfast_claim, granted_at = @holdfast_now,
       instance = @holdfast_home, host = @holdfast_host, pid = @holdfast_pid
 WHERE lock_key = :key AND @holdfast_ticket IS NOT NULL AND attempt = :attempt;
UPDATE holdfast_locks FORCE INDEX (PRIMARY)
   SET token = @holdfast_token, waiters = waiters - 1, owner = @holdfast_first_owner, granted_at = @holdfast_first_granted,
       instance = @holdfast_first_home, host = @holdfast_first_host, pid = @holdfast_first_pid,
       claimed = @holdfast_first_claimed, expires_at = @holdfast_last
 WHERE lock_key = :key AND @holdfast_ticket IS NOT NULL;
SET @holdfast_to = IF(@holdfast_ticket IS NULL, NULL, nullif(substring_index(@holdfast_home, '/', 1), :instance)),
    @holdfast_next_to = IF(@holdfast_ticket IS NOT NULL AND 10 * (@holdfast_end - @holdfast_now) < 9 * @holdfast_next_claim,
                           nullif(substring_index(@holdfast_next_home, '/', 1), :instance), NULL);
INSERT INTO holdfast_signals (instance, sent_to, kind, lock_key, attempt, expires_in, at)
SELECT @holdfast_to, substr(@holdfast_home, length(@holdfast_to) + 2), 'granted', :key, @holdfast_winner,
       IF(@holdfast_token = @holdfast_now, @holdfast_claim, 0), @holdfast_now
  FROM DUAL WHERE IS_USED_LOCK(left(concat('holdfast:', @holdfast_to), 64)) IS NOT NULL;
INSERT INTO holdfast_signals (instance, sent_to, kind, lock_key, attempt, expires_in, at)
SELECT @holdfast_next_to, substr(@holdfast_next_home, length(@holdfast_next_to) + 2), 'head', :key, @holdfast_next,
       @holdfast_end - @holdfast_now, :signalled
  FROM DUAL WHERE IS_USED_LOCK(left(concat('holdfast:', @holdfast_next_to), 64)) IS NOT NULL;
COMMIT;
DO IF(@holdfast_proof IS NULL, 0, RELEASE_LOCK(@holdfast_proof));
SET @holdfast_proof = concat('holdfast ', @holdfast_token, ' ', left(sha1(concat(database(), '.holdfast_locks ', CAST(:key AS BINARY))), 32));
DO IF(@holdfast_to IS NULL, 0, GET_LOCK(@holdfast_proof, 0));
SELECT concat_ws('\n', concat_ws(' ', @holdfast_token, @holdfast_now, @holdfast_claim, @holdfast_end,
                                 coalesce(@holdfast_next_claim, 0)), @holdfast_winner, @holdfast_home,
                 coalesce(@holdfast_next, ''), coalesce(@holdfast_next_home, ''), @holdfast_owner)
  FROM DUAL WHERE @holdfast_ticket IS NOT NULL;
SET @holdfast_line = IS_USED_LOCK(left(concat('holdfast:', @holdfast_to), 64)),
    @holdfast_next_line = nullif(IS_USED_LOCK(left(concat('holdfast:', @holdfast_next_to), 64)), @holdfast_line);
KILL QUERY coalesce(@holdfast_line, @holdfast_next_line);
KILL QUERY IF(@holdfast_line IS NULL, NULL, @holdfast_next_line);

-- name: begin
BEGIN;

-- name: commit_lazily
-- There is nothing like it here, and it is not sent.
DO 0;

-- name: lock_row
-- Every slow path begins with this. A fence of the holder may go on.
SELECT 1 FROM holdfast_locks FORCE INDEX (PRIMARY) WHERE lock_key = :key FOR UPDATE;

-- name: lock_row_at_once
-- The same without waiting: no row if somebody else has it.
SELECT 1 FROM holdfast_locks FORCE INDEX (PRIMARY) WHERE lock_key = :key FOR UPDATE SKIP LOCKED;

-- name: probe_pin
-- No row while a transaction fences the lease: then the token may not be changed. Behind lock_row; the inner FOR UPDATE
-- waits for nobody then, and reads past the snapshot that a caller's transaction may have.
SELECT 1 FROM holdfast_locks FORCE INDEX (by_token)
 WHERE lock_key = :key
   AND token = (SELECT s.token FROM holdfast_locks AS s FORCE INDEX (PRIMARY) WHERE s.lock_key = :key FOR UPDATE)
   FOR UPDATE SKIP LOCKED;

-- name: ensure_lock
-- A row to be locked, for a key that was never granted. If there is one, this locks it as an UPDATE would; a plain
-- INSERT would share it, and two of those in each other's way are a deadlock.
INSERT INTO holdfast_locks (lock_key, token, expires_at, granted_at, instance, host, pid)
VALUES (:key, 0, :clock, 0, '', '', 0)
    ON DUPLICATE KEY UPDATE lock_key = lock_key;

-- name: newest_row
-- In a caller's transaction: the lock as it is now, whatever their snapshot shows.
SELECT token, owner, attempt, claimed, expires_at, granted_at, instance, host, pid, last_attempt, holds, waiters,
       next_ticket, events, notes
  FROM holdfast_locks FORCE INDEX (PRIMARY) WHERE lock_key = :key FOR UPDATE;

-- name: probe_token
-- In a caller's transaction: probe_pin with the token said, because what is found by a whole key locks no gap beside it.
SELECT 1 FROM holdfast_locks FORCE INDEX (by_token) WHERE token = :token AND lock_key = :key FOR UPDATE SKIP LOCKED;

-- name: write_ended
INSERT INTO holdfast_ended (lock_key, attempt, why, broken_by, reason, until_at)
VALUES (:key, :attempt, :why, :by, :reason, :until_at)
    ON DUPLICATE KEY UPDATE why = :why, broken_by = :by, reason = :reason, until_at = :until_at;

-- name: read_holds_of
-- The same of many keys.
SELECT h.lock_key, h.attempt, h.expires_at, h.claimed, h.owner, h.token, h.terms, h.granted_at, h.instance, h.host, h.pid
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_holds AS h FORCE INDEX (PRIMARY) ON h.lock_key = CAST(k.lock_key AS BINARY)
 ORDER BY h.lock_key, h.token, h.granted_at, h.attempt;

-- name: write_hold
INSERT INTO holdfast_holds
       (lock_key, attempt, owner, token, terms, claimed, expires_at, granted_at, instance, host, pid)
VALUES (:key, :attempt, :owner, :token, :terms, :claimed, :expires_at, :granted_at, :instance, :host, :pid)
    ON DUPLICATE KEY UPDATE terms = :terms, claimed = :claimed, expires_at = :expires_at,
                            instance = :instance, host = :host, pid = :pid;

-- name: live_instances
-- Where those who wait can be told.
SELECT instance, count(*) FROM holdfast_tickets FORCE INDEX (PRIMARY)
 WHERE lock_key = :key AND expires_at > :now GROUP BY instance ORDER BY NULL;

-- name: end_tickets
INSERT INTO holdfast_ended (lock_key, attempt, why, reason, until_at)
SELECT lock_key, attempt, :why, :reason, :until_at
  FROM holdfast_tickets FORCE INDEX (PRIMARY) WHERE lock_key = :key AND expires_at > :now
    ON DUPLICATE KEY UPDATE why = :why, broken_by = NULL, reason = :reason, until_at = :until_at;

-- name: write_outcome
INSERT INTO holdfast_outcomes (lock_key, token, succeeded, text, until_at)
VALUES (:key, :token, :succeeded, :text, :until_at)
    ON DUPLICATE KEY UPDATE succeeded = :succeeded, text = :text, until_at = :until_at;

-- name: is_waited_for
-- Whether an owner has anything that others wait for.
SELECT EXISTS (SELECT 1 FROM holdfast_locks FORCE INDEX (by_owner) WHERE owner = :owner AND waiters > 0)
    OR EXISTS (SELECT 1 FROM holdfast_holds AS h FORCE INDEX (by_owner)
                STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = h.lock_key
                WHERE h.owner = :owner AND l.waiters > 0);

-- name: wanted_by
SELECT DISTINCT t.lock_key
  FROM JSON_TABLE(:owners, '$[*]' COLUMNS (owner VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS k
  STRAIGHT_JOIN holdfast_tickets AS t FORCE INDEX (by_owner) ON t.owner = CAST(k.owner AS BINARY);

-- name: holds_at
SELECT l.lock_key, l.owner, l.attempt, NULL, l.token
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(k.lock_key AS BINARY)
 WHERE l.holds = 0 AND l.owner IS NOT NULL AND l.attempt IS NOT NULL AND l.expires_at > :clock
 UNION ALL
SELECT h.lock_key, h.owner, h.attempt, h.terms, h.token
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_holds AS h FORCE INDEX (PRIMARY) ON h.lock_key = CAST(k.lock_key AS BINARY)
 WHERE h.expires_at > :clock;

-- name: notes_at
SELECT l.lock_key, l.notes
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(k.lock_key AS BINARY);

-- name: tickets_at
SELECT t.lock_key, t.owner, t.attempt, t.terms, t.queued_at, t.host, t.pid
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_tickets AS t FORCE INDEX (PRIMARY) ON t.lock_key = CAST(k.lock_key AS BINARY)
 WHERE t.expires_at > :clock ORDER BY t.lock_key, t.number;

-- name: renew
-- A whole batch: the places of those that were renewed. Matches only what is ours, alive, and not held for longer
-- already. A row that somebody has locked is skipped, and asked for by itself: it must not hold up all others. Only a
-- SELECT can skip, so it notes what it has locked, and the UPDATE waits for nothing. Keys are cast because a text of
-- another kind than the index finds nothing by it.
BEGIN;
SELECT group_concat(a.place) INTO @holdfast_due
  FROM JSON_TABLE(:leases, '$[*]' COLUMNS (
           place INT PATH '$.place', lock_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key',
           attempt VARCHAR(275) CHARACTER SET utf8mb4 PATH '$.attempt', token BIGINT PATH '$.token')) AS a
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(a.lock_key AS BINARY)
 WHERE l.attempt = CAST(a.attempt AS BINARY) AND l.token = a.token
   FOR UPDATE SKIP LOCKED;
SET @holdfast_now = :clock;
UPDATE :listed_leases AS a
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(a.lock_key AS BINARY)
   SET l.expires_at = @holdfast_now + a.ttl, l.claimed = 1
 WHERE find_in_set(a.place, @holdfast_due)
   AND l.expires_at > @holdfast_now AND l.expires_at <= @holdfast_now + a.ttl;
SELECT a.place
  FROM :listed_leases AS a
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(a.lock_key AS BINARY)
 WHERE find_in_set(a.place, @holdfast_due) AND l.expires_at = @holdfast_now + a.ttl AND l.expires_at > @holdfast_now;
COMMIT;

-- name: read_leases
-- Of a batch of leases: the place of each that has a hold, alive or not, its end, and whether it is in the table of holds.
SELECT a.place, coalesce(h.expires_at, l.expires_at), h.attempt IS NOT NULL
  FROM :renewed_leases AS a
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(a.lock_key AS BINARY)
  LEFT JOIN holdfast_holds AS h FORCE INDEX (PRIMARY)
         ON h.lock_key = CAST(a.lock_key AS BINARY) AND h.attempt = CAST(a.attempt AS BINARY) AND h.token = a.token
 WHERE h.attempt IS NOT NULL OR (l.attempt = CAST(a.attempt AS BINARY) AND l.token = a.token);

-- name: renew_holds
UPDATE :renewed_leases AS a
  STRAIGHT_JOIN holdfast_holds AS h FORCE INDEX (PRIMARY)
             ON h.lock_key = CAST(a.lock_key AS BINARY) AND h.attempt = CAST(a.attempt AS BINARY)
   SET h.expires_at = a.ends_at, h.claimed = 1;

-- name: renew_locks
-- After renew_holds. The row says whether the lease that was granted first is claimed.
UPDATE :renewed_leases AS a
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(a.lock_key AS BINARY)
   SET l.expires_at = greatest(l.expires_at, a.ends_at),
       l.claimed = CASE WHEN l.claimed = 1 THEN 1 ELSE
           (SELECT max(h.claimed) FROM holdfast_holds AS h FORCE INDEX (PRIMARY)
             WHERE h.lock_key = l.lock_key
               AND h.token = (SELECT min(f.token) FROM holdfast_holds AS f FORCE INDEX (PRIMARY) WHERE f.lock_key = l.lock_key)) END;

-- name: waited_for
-- Locks and the tickets at their heads: what has to be settled, and what their waiters want to know.
SELECT l.lock_key, :clock, l.owner, l.expires_at, l.holds, t.attempt, t.expires_at, l.notes
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(k.lock_key AS BINARY)
  LEFT JOIN holdfast_tickets AS t ON t.lock_key = l.lock_key
        AND t.number = (SELECT min(number) FROM holdfast_tickets AS s WHERE s.lock_key = l.lock_key);

-- name: refresh_tickets
-- A whole batch: the places of those that are still there.
UPDATE JSON_TABLE(:tickets, '$[*]' COLUMNS (
           lock_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key',
           attempt VARCHAR(275) CHARACTER SET utf8mb4 PATH '$.attempt', patience BIGINT PATH '$.patience')) AS a
  STRAIGHT_JOIN holdfast_tickets AS t FORCE INDEX (by_attempt)
     ON t.lock_key = CAST(a.lock_key AS BINARY) AND t.attempt = CAST(a.attempt AS BINARY)
   SET t.expires_at = greatest(t.expires_at, :clock + a.patience);
SELECT a.place
  FROM JSON_TABLE(:tickets, '$[*]' COLUMNS (
           place INT PATH '$.place', lock_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key',
           attempt VARCHAR(275) CHARACTER SET utf8mb4 PATH '$.attempt')) AS a
  STRAIGHT_JOIN holdfast_tickets AS t FORCE INDEX (by_attempt)
     ON t.lock_key = CAST(a.lock_key AS BINARY) AND t.attempt = CAST(a.attempt AS BINARY);

-- name: fence
-- In the caller's transaction, to its end. It locks a record of by_token and not the row: renewing and queueing pass,
-- a grant waits, because it changes the token. Nothing but the index may be read, or the row would be locked as well.
SELECT 1 FROM holdfast_locks FORCE INDEX (by_token) WHERE token = :token AND lock_key = :key LOCK IN SHARE MODE;

-- name: fence_seen
-- No row if a snapshot from before the grant hides it. By the index alone as well: at SERIALIZABLE what is read is locked.
SELECT 1 FROM holdfast_locks FORCE INDEX (by_token) WHERE token = :token AND lock_key = :key;

-- name: count_held
SELECT count(*) FROM holdfast_locks WHERE held_until > :clock;

-- name: list_by_owner
-- Of an owner whose lease is not the first of its key, only the holds know. Each key comes once, by its first hold there.
(SELECT l.lock_key, l.token, l.owner, l.claimed, l.expires_at, l.granted_at, l.host, l.pid, l.holds, l.waiters, l.notes
  FROM holdfast_locks AS l FORCE INDEX (by_owner)
 WHERE l.owner = :owner AND (l.attempt IS NOT NULL OR l.holds > 0 OR l.expires_at > :now)
   AND l.lock_key >= :from_key AND (:to_key IS NULL OR l.lock_key < :to_key) AND l.lock_key > :after
   AND :owned_in_state
 ORDER BY l.lock_key LIMIT :limit)
 UNION ALL
(SELECT l.lock_key, l.token, l.owner, l.claimed, l.expires_at, l.granted_at, l.host, l.pid, l.holds, l.waiters, l.notes
  FROM holdfast_holds AS h FORCE INDEX (by_owner)
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = h.lock_key
 WHERE h.owner = :owner AND l.owner <> :owner
   AND h.lock_key >= :from_key AND (:to_key IS NULL OR h.lock_key < :to_key) AND h.lock_key > :after
   AND h.attempt = (SELECT min(s.attempt) FROM holdfast_holds AS s WHERE s.lock_key = h.lock_key AND s.owner = :owner)
   AND :owned_in_state
 ORDER BY h.lock_key LIMIT :limit)
 ORDER BY lock_key LIMIT :limit;

-- name: feed_new
-- Events that have no place yet.
SELECT lock_key, number, at
  FROM holdfast_history FORCE INDEX (by_feed) WHERE feed IS NULL ORDER BY at, lock_key, number LIMIT :limit;

-- name: sweep_expired
SELECT lock_key FROM holdfast_locks FORCE INDEX (by_expiry) WHERE held_until <= :now ORDER BY held_until LIMIT :limit;

-- name: delete_idle
-- What somebody has locked is skipped (l), and so is what somebody fences (p).
BEGIN;
SELECT group_concat(k.place) INTO @holdfast_idle
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(k.lock_key AS BINARY)
  STRAIGHT_JOIN holdfast_locks AS p FORCE INDEX (by_token) ON p.token = l.token AND p.lock_key = l.lock_key
 WHERE l.owner IS NULL AND l.waiters = 0 AND l.expires_at <= :idle_since
   FOR UPDATE SKIP LOCKED;
DELETE l
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(k.lock_key AS BINARY)
 WHERE find_in_set(k.place, @holdfast_idle);
COMMIT;

-- name: delete_never_granted
-- Rows that were made only to be locked, up to where the sweep has come. They are looked for without locking anything:
-- a DELETE would lock all it walks by.
SELECT group_concat(hex(lock_key)) INTO @holdfast_never
  FROM (SELECT lock_key FROM holdfast_locks FORCE INDEX (PRIMARY)
         WHERE lock_key > :after AND (:upto IS NULL OR lock_key <= :upto)
           AND token = 0 AND notes IS NULL AND waiters = 0 AND expires_at <= :idle_since LIMIT :limit) AS found;
DELETE l
  FROM JSON_TABLE(concat('["', replace(@holdfast_never, ',', '","'), '"]'), '$[*]' COLUMNS (
           lock_key VARCHAR(2040) PATH '$')) AS k
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = unhex(k.lock_key)
 WHERE l.token = 0 AND l.notes IS NULL AND l.waiters = 0 AND l.expires_at <= :idle_since;

-- name: delete_ended
DELETE FROM holdfast_ended WHERE until_at <= :now ORDER BY until_at LIMIT :limit;

-- name: delete_outcomes
DELETE FROM holdfast_outcomes WHERE until_at <= :now ORDER BY until_at LIMIT :limit;

-- name: delete_history
-- What is in no week's partition; those are dropped as a whole.
DELETE FROM holdfast_history PARTITION (p_old, p_rest) WHERE at <= :before ORDER BY at LIMIT :limit;

-- name: insert_instance
-- If somebody else is faster, error 1062 says so, and all is done again.
INSERT INTO holdfast_instances
       (id, name, host, pid, address, version, capacity, state, joined_at, beat_at, expires_at, claims, asked_at)
SELECT :id, :name, :host, :pid, :address, :version, :capacity, 'alive', t.now, t.now, t.now + :ttl, 0, t.now
  FROM (SELECT :clock AS now) AS t WHERE NOT EXISTS (SELECT 1 FROM holdfast_instances WHERE id = :id);

-- name: write_instance
UPDATE holdfast_instances FORCE INDEX (PRIMARY)
   SET state = :state, expires_at = :expires_at, beat_at = :beat_at, address = :address, host = :host, pid = :pid,
       claims = :claims, asked_at = :asked_at, wants = :wants
 WHERE id = :id;

-- name: dead_instances
SELECT id, name FROM holdfast_instances FORCE INDEX (by_state)
 WHERE state IN ('alive', 'draining') AND expires_at <= :began AND id <> :id
 ORDER BY expires_at, id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: delete_instances
-- Only a SELECT can skip what somebody has locked, so it notes what to delete.
BEGIN;
SELECT group_concat(hex(id)) INTO @holdfast_gone
  FROM (SELECT id FROM holdfast_instances FORCE INDEX (by_state)
         WHERE state IN ('alive', 'draining', 'left', 'dead') AND expires_at <= :before LIMIT :limit
           FOR UPDATE SKIP LOCKED) AS found;
DELETE i
  FROM JSON_TABLE(concat('["', replace(@holdfast_gone, ',', '","'), '"]'), '$[*]' COLUMNS (id VARCHAR(2040) PATH '$')) AS k
  STRAIGHT_JOIN holdfast_instances AS i FORCE INDEX (PRIMARY) ON i.id = unhex(k.id);
COMMIT;

-- name: new_work
-- One that is there is locked, so that it is still there when it is read. If somebody else makes it at the same moment,
-- error 1062 says so, and all is done again.
SELECT count(*) INTO @holdfast_known FROM holdfast_work FORCE INDEX (PRIMARY) WHERE work_key = :key FOR UPDATE;
INSERT INTO holdfast_work
       (work_key, type, state, due_at, data, text, tries, max_tries, instance, attempt, token, claim, offered_at)
SELECT :key, :type, 'offered', t.now, 'null', '', 0, 0, '', '', 0, 0, t.now
  FROM (SELECT :clock AS now) AS t WHERE @holdfast_known = 0;

-- name: offer_works
-- What is known is found by plain reads, so that nobody who is at it has to wait for us. The works are sent once, and
-- kept in a variable: they may be large. If somebody offers the same at the same moment, error 1062 says so, and all is
-- done again.
SET @holdfast_works = :works, @holdfast_now = :clock;
SELECT group_concat(a.place) INTO @holdfast_new
  FROM :offered_keys AS a
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_work AS w FORCE INDEX (PRIMARY) WHERE w.work_key = CAST(a.work_key AS BINARY));
SELECT group_concat(a.place) INTO @holdfast_over
  FROM :offered_keys AS a
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (PRIMARY) ON w.work_key = CAST(a.work_key AS BINARY)
 WHERE :again AND w.state IN ('completed', 'failed');
INSERT INTO holdfast_work
       (work_key, type, state, due_at, data, text, tries, max_tries, instance, attempt, token, claim, offered_at)
SELECT a.work_key, a.type, 'offered', coalesce(a.at, @holdfast_now + a.delay), a.data, '', 0, a.max_tries, '', '', 0, 0,
       @holdfast_now
  FROM :offered_works AS a
 WHERE find_in_set(a.place, @holdfast_new);
SELECT group_concat(a.place) INTO @holdfast_again
  FROM :offered_keys AS a
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (PRIMARY) ON w.work_key = CAST(a.work_key AS BINARY)
 WHERE find_in_set(a.place, @holdfast_over) AND w.state IN ('completed', 'failed') FOR UPDATE;
UPDATE :offered_works AS a
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (PRIMARY) ON w.work_key = CAST(a.work_key AS BINARY)
   SET w.state = 'offered', w.due_at = coalesce(a.at, @holdfast_now + a.delay), w.data = a.data, w.text = '', w.tries = 0,
       w.max_tries = a.max_tries, w.instance = '', w.attempt = '', w.token = 0, w.claim = 0, w.offered_at = @holdfast_now,
       w.assigned_at = NULL
 WHERE find_in_set(a.place, @holdfast_again);
SELECT w.work_key, w.type, w.due_at <= @holdfast_now
  FROM :offered_keys AS a
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (PRIMARY) ON w.work_key = CAST(a.work_key AS BINARY)
 WHERE find_in_set(a.place, concat_ws(',', @holdfast_new, @holdfast_again));

-- name: work_states
SELECT w.work_key, w.state
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (PRIMARY) ON w.work_key = CAST(k.lock_key AS BINARY);

-- name: due_assigned
-- Once for each of the types. It waits for nobody, so NOW will do: it stands still, and so an index can be searched by
-- it. What subqueries read is not locked.
SELECT w.work_key, w.type, w.state, w.due_at, w.data, w.text, w.tries, w.max_tries, w.instance, w.attempt, w.token, w.claim,
       w.offered_at, w.assigned_at,
       (SELECT l.attempt FROM holdfast_locks AS l WHERE l.lock_key = w.work_key),
       (SELECT l.expires_at FROM holdfast_locks AS l WHERE l.lock_key = w.work_key),
       (SELECT l.holds FROM holdfast_locks AS l WHERE l.lock_key = w.work_key),
       (SELECT l.waiters FROM holdfast_locks AS l WHERE l.lock_key = w.work_key),
       (SELECT l.notes IS NULL FROM holdfast_locks AS l WHERE l.lock_key = w.work_key), :began
  FROM holdfast_work AS w FORCE INDEX (by_due)
 WHERE w.state = 'assigned' AND w.type = :each_type AND w.due_at <= :began
 ORDER BY w.due_at, w.work_key LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: move_due
UPDATE JSON_TABLE(:works, '$[*]' COLUMNS (
           work_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key', due BIGINT PATH '$.due')) AS a
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (PRIMARY) ON w.work_key = CAST(a.work_key AS BINARY)
   SET w.due_at = a.due;

-- name: pick_work
-- Once for each of the types; see due_assigned.
SELECT w.work_key, w.due_at,
       NOT EXISTS (SELECT 1 FROM holdfast_locks AS l
                    WHERE l.lock_key = w.work_key
                      AND NOT (l.owner IS NULL AND l.waiters = 0 AND l.holds = 0 AND l.notes IS NULL)),
       :began
  FROM holdfast_work AS w FORCE INDEX (by_due)
 WHERE w.state = 'offered' AND w.type = :each_type AND w.due_at <= :began
 ORDER BY w.due_at, w.work_key LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: try_lock_rows
SELECT group_concat(k.place) INTO @holdfast_mine
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(k.lock_key AS BINARY)
   FOR UPDATE SKIP LOCKED;
SELECT l.lock_key, coalesce(find_in_set(k.place, @holdfast_mine) > 0, 0)
  FROM :listed_keys AS k
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(k.lock_key AS BINARY);

-- name: take_locks
-- What somebody has locked is skipped (l), and so is what somebody fences (p).
SELECT group_concat(a.place) INTO @holdfast_free
  FROM :listed_works AS a
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(a.lock_key AS BINARY)
  STRAIGHT_JOIN holdfast_locks AS p FORCE INDEX (by_token) ON p.token = l.token AND p.lock_key = l.lock_key
 WHERE l.owner IS NULL AND l.waiters = 0 AND l.holds = 0 AND l.notes IS NULL FOR UPDATE SKIP LOCKED;
SET @holdfast_now = :clock;
INSERT INTO holdfast_locks (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
SELECT a.lock_key, greatest(m.token_floor + 1, @holdfast_now), :owner, a.attempt, @holdfast_now, @holdfast_now + :ttl,
       :instance, :host, :pid
  FROM holdfast_meta AS m
  STRAIGHT_JOIN :listed_works AS a
 WHERE m.id = 1
   AND NOT EXISTS (SELECT 1 FROM holdfast_locks AS l FORCE INDEX (PRIMARY) WHERE l.lock_key = CAST(a.lock_key AS BINARY))
    ON DUPLICATE KEY UPDATE lock_key = holdfast_locks.lock_key;
UPDATE :listed_works AS a
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(a.lock_key AS BINARY)
   SET l.token = greatest(IF(l.token > 0, l.token, (SELECT token_floor FROM holdfast_meta WHERE id = 1)) + 1, @holdfast_now),
       l.owner = :owner, l.attempt = a.attempt, l.claimed = 1, l.granted_at = @holdfast_now,
       l.expires_at = @holdfast_now + :ttl, l.instance = :instance, l.host = :host, l.pid = :pid
 WHERE find_in_set(a.place, @holdfast_free);

-- name: take_works
-- An UPDATE locks all it joins with, so that what is not ours must not come into it.
SELECT group_concat(a.place) INTO @holdfast_taken
  FROM :listed_works AS a
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(a.lock_key AS BINARY)
 WHERE l.attempt = CAST(a.attempt AS BINARY);
UPDATE :listed_works AS a
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = CAST(a.lock_key AS BINARY)
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (PRIMARY) ON w.work_key = l.lock_key
   SET w.state = 'assigned', w.instance = :id, w.attempt = l.attempt, w.token = l.token, w.tries = w.tries + 1,
       w.claim = :number, w.assigned_at = l.granted_at, w.due_at = l.expires_at
 WHERE find_in_set(a.place, @holdfast_taken);
SELECT w.work_key, w.attempt, w.token, w.data, w.tries, w.assigned_at, w.due_at
  FROM :listed_works AS a
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (PRIMARY) ON w.work_key = CAST(a.lock_key AS BINARY)
 WHERE find_in_set(a.place, @holdfast_taken);

-- name: claim_note
-- The fast way of a claim. One row changed if the instance is alive and the claim is a new one; in the insert id are how
-- much it has (above) and its capacity (the lower 32 bits). Without i.id it would be counted before the row is locked.
UPDATE holdfast_instances AS i FORCE INDEX (PRIMARY)
   SET i.claims = :number + 0 * LAST_INSERT_ID(
           (SELECT count(*) FROM holdfast_work AS w FORCE INDEX (by_instance) WHERE w.instance = i.id AND w.state = 'assigned') << 32
           | least(i.capacity, 4294967295)),
       i.asked_at = :clock,
       i.address = :address, i.host = :host, i.pid = :pid, i.wants = NULL
 WHERE i.id = :id AND i.state = 'alive' AND i.claims < :number
   AND i.expires_at > :clock;

-- name: claim_pick
-- Once for each of the types; see due_assigned. All is in one column, a value a line, because the driver takes longer for
-- a column than the server for the row: the time; when work of this type is to be looked at first, or nothing; the floor
-- of tokens; when this was due; how often it was tried; the token it had last; the key; the data.
SELECT concat_ws('\n', :began,
                 coalesce((SELECT min(due_at) FROM holdfast_work FORCE INDEX (by_due)
                            WHERE state = 'assigned' AND type = :each_type), ''),
                 (SELECT token_floor FROM holdfast_meta WHERE id = 1),
                 due_at, tries, token, work_key, data)
  FROM holdfast_work FORCE INDEX (by_due) WHERE state = 'offered' AND type = :each_type AND due_at <= :began
 ORDER BY due_at, work_key LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: claim_locks
-- The tokens of those that nobody else has locked; -1: not free, or somebody fences it (p).
SELECT l.lock_key, IF(l.token > 0 AND l.owner IS NULL AND l.waiters = 0 AND l.holds = 0 AND l.notes IS NULL AND p.token > 0,
                      l.token, -1)
  FROM holdfast_locks AS l FORCE INDEX (PRIMARY)
  LEFT JOIN holdfast_locks AS p FORCE INDEX (by_token) ON p.token = l.token AND p.lock_key = l.lock_key
 WHERE l.lock_key IN (:keys) FOR UPDATE SKIP LOCKED;

-- name: claim_new
-- Locks that have no row. The token of them all is the time, which is above all they had. Should somebody have made one meanwhile, error 1062 says so. The floor of tokens that they go
-- by was read in this transaction: for it to have risen since by a lock of theirs, that would have to have been made,
-- freed, and left idle for as long as sweeping asks for, which is longer than a transaction may last.
INSERT INTO holdfast_locks (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
VALUES (:each_key, :at, :id, :each_attempt, :at, :at + :ttl, :address, :host, :pid);

-- name: claim_free
-- The attempt has its place among the keys at its end.
UPDATE holdfast_locks FORCE INDEX (PRIMARY)
   SET token = :at, owner = :id, attempt = concat(:attempt, '.', FIELD(lock_key, :keys) - 1),
       claimed = 1, granted_at = :at, expires_at = :at + :ttl, instance = :address, host = :host, pid = :pid
 WHERE lock_key IN (:free);

-- name: claim_works
UPDATE holdfast_work FORCE INDEX (PRIMARY)
   SET state = 'assigned', instance = :id, attempt = concat(:attempt, '.', FIELD(work_key, :keys) - 1),
       token = :at, tries = tries + 1, claim = :number, assigned_at = :at, due_at = :at + :ttl
 WHERE work_key IN (:keys);

-- name: claim_want
UPDATE holdfast_instances FORCE INDEX (PRIMARY) SET wants = :wants WHERE id = :id;

-- name: claimed_before
SELECT w.work_key, w.attempt, w.token, w.data, w.tries, coalesce(h.expires_at, l.expires_at), t.now
  FROM (SELECT :clock AS now) AS t
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (by_instance) ON w.instance = :id AND w.state = 'assigned'
  STRAIGHT_JOIN holdfast_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.work_key
  LEFT JOIN holdfast_holds AS h FORCE INDEX (PRIMARY) ON h.lock_key = w.work_key AND h.attempt = w.attempt
 WHERE w.claim = :number AND CASE WHEN l.attempt = w.attempt THEN l.expires_at > t.now ELSE h.expires_at > t.now END;

-- name: next_due
-- Always one row.
SELECT :clock,
       min((SELECT w.due_at FROM holdfast_work AS w FORCE INDEX (by_due)
             WHERE w.state = 'offered' AND w.type = CAST(k.type AS BINARY) ORDER BY w.due_at LIMIT 1)),
       min((SELECT w.due_at FROM holdfast_work AS w FORCE INDEX (by_due)
             WHERE w.state = 'assigned' AND w.type = CAST(k.type AS BINARY) ORDER BY w.due_at LIMIT 1))
  FROM JSON_TABLE(:types, '$[*]' COLUMNS (type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS k;

-- name: count_work
-- Reads all that is not completed, and of that only an index. What sum() gives would be decimals.
SELECT type, count(IF(state = 'offered', 1, NULL)), count(IF(state = 'assigned', 1, NULL)), count(IF(state = 'failed', 1, NULL)),
       min(IF(state = 'offered', due_at, NULL)), :clock
  FROM holdfast_work FORCE INDEX (by_due) WHERE state IN ('offered', 'assigned', 'failed') GROUP BY type ORDER BY type;

-- name: delete_works
-- Only a SELECT can skip what somebody has locked, so it notes what to delete.
BEGIN;
SELECT group_concat(hex(work_key)) INTO @holdfast_gone
  FROM (SELECT work_key FROM holdfast_work FORCE INDEX (by_end) WHERE ended_at <= :before ORDER BY ended_at LIMIT :limit
           FOR UPDATE SKIP LOCKED) AS found;
DELETE w
  FROM JSON_TABLE(concat('["', replace(@holdfast_gone, ',', '","'), '"]'), '$[*]' COLUMNS (
           work_key VARCHAR(2040) PATH '$')) AS k
  STRAIGHT_JOIN holdfast_work AS w FORCE INDEX (PRIMARY) ON w.work_key = unhex(k.work_key);
COMMIT;

-- name: grant_access
-- What was granted under that id before stays as it is, and is the answer.
BEGIN;
INSERT INTO holdfast_access (id, name, digest, rights, created_at, expires_at)
SELECT :id, :name, :digest, :rights, t.now, t.now + :ttl
  FROM (SELECT :clock AS now) AS t
    ON DUPLICATE KEY UPDATE id = :id;
SELECT id, name, digest, rights, created_at, expires_at FROM holdfast_access WHERE id = :id;
COMMIT;

-- name: revoke_access
BEGIN;
SELECT a.id, a.name, a.digest, a.rights, a.created_at, a.expires_at
  INTO @holdfast_id_of, @holdfast_name_of, @holdfast_digest_of, @holdfast_rights_of, @holdfast_created_at_of, @holdfast_expires_at_of
  FROM (SELECT 1) AS once LEFT JOIN holdfast_access AS a FORCE INDEX (PRIMARY) ON a.id = :id FOR UPDATE;
DELETE FROM holdfast_access WHERE id = :id;
SELECT @holdfast_id_of, @holdfast_name_of, @holdfast_digest_of, @holdfast_rights_of, @holdfast_created_at_of, @holdfast_expires_at_of
  FROM DUAL WHERE @holdfast_id_of IS NOT NULL;
COMMIT;

-- name: delete_access
DELETE FROM holdfast_access WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit;

-- name: listen
-- The listening connection of a client has this for its life, so that others find it by IS_USED_LOCK. There is no
-- list of listeners that could be out of date: the server forgets it with the connection.
SELECT GET_LOCK(left(concat('holdfast:', :instance), 64), :timeout), CONNECTION_ID();

-- name: be_awaited
-- The first of all listeners waits for a lock of this connection's. So it can be woken as the others are.
SELECT concat('holdfast awaited ', CONNECTION_ID()) FROM DUAL
 WHERE GET_LOCK(concat('holdfast awaited ', CONNECTION_ID()), 0) = 1;

-- name: limits
-- How many connections the server takes, and our account may have (0: as many as there are), and then how many it has.
SELECT @@max_connections, @@max_user_connections,
       IF(@@max_user_connections = 0, 0, (SELECT count(*) FROM information_schema.processlist
                                           WHERE user = substring_index(USER(), '@', 1)));

-- name: hear
-- Look and wait in one statement: whatever is committed before the look ends the wait at once, and for whatever is
-- committed later somebody sends KILL QUERY. :told are the tokens that were handed to us when we looked last.
-- What is waited for (:awaited) is a lock that a connection has for its life: the first of all listeners, or the second
-- connection of that one. 1: nobody had it any more; we keep only that of the first. Where there is nothing to wait for, a
-- sleep has to do: all sleeps of a server share one mutex, and to end one may take 2 s.
-- Then what there is to hear, a value a line: a row each of what was handed to us, with when that was, for how long, and
-- whether it is proved to have reached the disk (see hand_over); and of the signals, with the token of those that are
-- proved to have (see pass_permit), or 0. group_concat would make a file.
-- MariaDB goes on after a wait that was ended; where the error comes instead, it is asked for again.
SELECT IF(EXISTS (SELECT 1 FROM holdfast_locks FORCE INDEX (by_winner)
                   WHERE handed_to = :instance AND NOT find_in_set(token, :told))
          OR EXISTS (SELECT 1 FROM holdfast_signals WHERE instance = :instance), 0,
          IF(:awaited = '', SLEEP(:seconds),
             GET_LOCK(:awaited, :seconds) AND (:awaited = 'holdfast first' OR RELEASE_LOCK(:awaited))));
SELECT concat_ws('\n', 'granted', lock_key, attempt, instance, token, granted_at, expires_at - granted_at,
                 IS_USED_LOCK(concat('holdfast ', token, ' ', left(sha1(concat(database(), '.holdfast_locks ', lock_key)), 32)))
                 IS NOT NULL)
  FROM holdfast_locks FORCE INDEX (by_winner) WHERE handed_to = :instance;
SELECT concat_ws('\n', kind, lock_key, attempt, sent_to, expires_in, id,
                 IF(kind = 'granted' AND expires_in > 0
                    AND IS_USED_LOCK(concat('holdfast ', at, ' ', left(sha1(concat(database(), '.holdfast_locks ', lock_key)), 32)))
                    IS NOT NULL, at, 0))
  FROM holdfast_signals WHERE instance = :instance ORDER BY id;

-- name: delete_signal
DELETE FROM holdfast_signals WHERE id = :id;

-- name: signal
-- What a listener could not find by itself; nothing, if there is none.
INSERT INTO holdfast_signals (instance, sent_to, kind, lock_key, attempt, expires_in, at)
SELECT :instance, :to, :kind, :key, :attempt, :expires_in, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
  FROM DUAL WHERE IS_USED_LOCK(left(concat('holdfast:', :instance), 64)) IS NOT NULL;

-- name: signal_granted
-- The same for a hand-over, of which a listener finds those that are in the lock's own row.
INSERT INTO holdfast_signals (instance, sent_to, kind, lock_key, attempt, expires_in, at)
SELECT :instance, :to, :kind, :key, :attempt, :expires_in, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)
  FROM DUAL WHERE IS_USED_LOCK(left(concat('holdfast:', :instance), 64)) IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM holdfast_locks FORCE INDEX (PRIMARY) WHERE lock_key = :key AND attempt = :attempt);

-- name: wake
-- Ends the wait of a listener. Error 1094: there is none.
KILL QUERY IS_USED_LOCK(left(concat('holdfast:', :instance), 64));

-- name: hang_up
-- Ends a listener's connection: left alone, the server would notice only after seconds that it was closed. :connection
-- is the one that is meant, because another one may have the name by now; 0: any.
KILL IF(:connection IN (0, IS_USED_LOCK(left(concat('holdfast:', :instance), 64))),
        IS_USED_LOCK(left(concat('holdfast:', :instance), 64)), NULL);

-- name: delete_signals
-- Of listeners that died before they read them.
DELETE FROM holdfast_signals WHERE at <= :before ORDER BY at LIMIT :limit;
