-- What holdfast sends to SQLite, beside the statements in stores/sql/statements.sql. To paste one into a console,
-- put in what the shorthands below stand for, and values for the other parameters. With that put in, this prints one:
-- python -m holdfast.stores.sql sqlite acquire
--
-- :now is empty in production, and then the database's clock decides; tests pass a time. SQLite evaluates
-- 'now' after it has the write lock, so a statement that had to wait does not use the time before the wait.
-- On SQLite a request is one statement, or one BEGIN IMMEDIATE … COMMIT: a read transaction that is upgraded
-- to write fails at once when somebody wrote meanwhile, whatever the busy timeout.
--
-- :clock = coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))
-- :full_notes = '{"mode":"permits","permits":' || l.holds || '}'
-- :by_instance = INDEXED BY holdfast_work_by_instance
-- :by_state = INDEXED BY holdfast_instances_by_state
-- :by_feed = INDEXED BY holdfast_history_by_feed
-- :work_page = work_key >= :from_key AND work_key < coalesce(:to_key, x'') AND +work_key > :after
--           ORDER BY work_key LIMIT :limit

-- name: acquire
-- The fast path: a row when granted, in one statement. It takes only a lock that is free with nobody waiting, or
-- confirms what this attempt has already (a repeated request, or the claim of a hand-over, if it is for long: else
-- the head of the queue may have to be told). A lock with notes is left alone: to be granted may change them. No row:
-- the slow path.
INSERT INTO holdfast_locks AS l
       (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
SELECT :key,
       max((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now),
       :owner, :attempt, t.now, t.now + :ttl, :instance, :host, :pid
  FROM (SELECT :clock AS now) AS t
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_ended
                    WHERE lock_key = :key AND attempt = :attempt AND until_at > t.now)
    ON CONFLICT (lock_key) DO UPDATE
   SET token      = CASE WHEN l.owner IS NULL THEN max(l.token + 1, excluded.granted_at) ELSE l.token END,
       granted_at = CASE WHEN l.owner IS NULL THEN excluded.granted_at ELSE l.granted_at END,
       expires_at = CASE WHEN l.owner IS NULL OR l.claimed = 0 THEN excluded.expires_at
                         ELSE max(l.expires_at, excluded.expires_at) END,
       owner = excluded.owner, attempt = excluded.attempt, claimed = 1,
       instance = excluded.instance, host = excluded.host, pid = excluded.pid
 WHERE CASE WHEN l.owner IS NULL THEN l.waiters = 0 AND l.notes IS NULL AND l.last_attempt IS NOT excluded.attempt
            ELSE l.attempt = excluded.attempt AND l.expires_at > excluded.granted_at AND (l.claimed OR :long) END
RETURNING token, expires_at - :clock;

-- name: release
-- The fast path: a row when the only hold was released and nobody waits. A lock with notes is left alone: it may not
-- be idle before the time until which a result is kept. No row: the slow path.
UPDATE holdfast_locks
   SET owner = NULL, attempt = NULL, last_attempt = attempt, claimed = 1,
       expires_at = :clock
 WHERE lock_key = :key AND attempt = :attempt AND token = :token
   AND waiters = 0 AND notes IS NULL
   AND expires_at > :clock
RETURNING token;

-- name: join_queue
-- The fast path of joining a queue, before the ticket is written in the same transaction: a row with its number and the
-- holder. Only where there is nothing to settle: a plain lease and the head of the queue are alive. The last column
-- tells whether somebody waits for the owner, as is_waited_for does: no other writer can come in between. No row: the
-- slow path.
UPDATE holdfast_locks
   SET waiters = waiters + 1, next_ticket = next_ticket + 1
 WHERE lock_key = :key AND owner <> :owner AND attempt <> :attempt AND holds = 0 AND notes IS NULL
   AND expires_at > :clock AND last_attempt IS NOT :attempt
   AND NOT EXISTS (SELECT 1 FROM holdfast_ended WHERE lock_key = :key AND attempt = :attempt AND until_at > :clock)
   AND NOT EXISTS (SELECT 1 FROM holdfast_tickets WHERE lock_key = :key AND attempt = :attempt)
   AND coalesce((SELECT expires_at FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT 1) > :clock, 1)
RETURNING :clock, next_ticket - 1, waiters, owner, host, pid, token, granted_at, claimed, expires_at,
          EXISTS (SELECT 1 FROM holdfast_locks INDEXED BY holdfast_locks_by_owner WHERE owner = :owner AND waiters > 0)
          OR EXISTS (SELECT 1 FROM holdfast_holds AS h INDEXED BY holdfast_holds_by_owner
                      CROSS JOIN holdfast_locks AS l ON l.lock_key = h.lock_key
                      WHERE h.owner = :owner AND l.waiters > 0);

-- name: next_holder
-- The fast path of a release with somebody waiting, to its end: the ticket that is handed the lock. Only where there is
-- nothing else to settle or to tell: one hold, both heads of the queue alive, the first on plain terms. No row: the slow
-- path. (One UPDATE … FROM would read the whole queue.)
SELECT t.now, max(l.token + 1, t.now), one.number, one.attempt, one.owner, one.claim, one.instance, one.host, one.pid
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN holdfast_locks AS l
 CROSS JOIN holdfast_tickets AS one
 WHERE l.lock_key = :key AND l.attempt = :attempt AND l.token = :token AND l.holds = 0 AND l.notes IS NULL
   AND l.expires_at > t.now
   AND one.lock_key = :key
   AND one.number = (SELECT number FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT 1)
   AND one.terms IS NULL AND one.expires_at > t.now
   AND NOT EXISTS (SELECT 1 FROM holdfast_tickets AS two
                    WHERE two.lock_key = :key
                      AND two.number = (SELECT number FROM holdfast_tickets
                                         WHERE lock_key = :key AND number > one.number ORDER BY number LIMIT 1)
                      AND (two.expires_at <= t.now OR two.claim > one.claim));

-- name: hand_over
UPDATE holdfast_locks
   SET token = :token, owner = :owner, attempt = :attempt, claimed = 0, last_attempt = attempt, granted_at = :now,
       expires_at = :now + :claim, instance = :instance, host = :host, pid = :pid, waiters = waiters - 1
 WHERE lock_key = :key;

-- name: join_full
-- The fast path of joining the queue of a semaphore, before the ticket is written in the same transaction: a row with its
-- number and the lease that was granted first. Only where there is nothing to settle: each permit is held by itself, so
-- nobody fits, whatever they take; no hold has ended, the head of the queue is alive, and the notes say nothing else. (The
-- terms of who takes one permit are the same text as such notes.) No row: the slow path.
UPDATE holdfast_locks AS l
   SET waiters = waiters + 1, next_ticket = next_ticket + 1
 WHERE lock_key = :key AND notes = :notes AND notes = :full_notes AND last_attempt IS NOT :attempt
   AND (SELECT min(expires_at) FROM holdfast_holds WHERE lock_key = :key) > :clock
   AND NOT EXISTS (SELECT 1 FROM holdfast_holds AS h
                    WHERE h.lock_key = :key AND (h.attempt = :attempt OR h.terms IS NOT :notes))
   AND NOT EXISTS (SELECT 1 FROM holdfast_ended WHERE lock_key = :key AND attempt = :attempt AND until_at > :clock)
   AND NOT EXISTS (SELECT 1 FROM holdfast_tickets WHERE lock_key = :key AND attempt = :attempt)
   AND coalesce((SELECT expires_at FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT 1) > :clock, 1)
RETURNING :clock, next_ticket - 1, waiters, owner, host, pid,
          (SELECT min(token) FROM holdfast_holds WHERE lock_key = :key), granted_at, claimed,
          (SELECT min(expires_at) FROM holdfast_holds WHERE lock_key = :key);

-- name: next_permit
-- The fast path of releasing one of several permits with somebody waiting, to its end: the ticket that is handed it, and
-- who is head then. Only where there is nothing else to settle: each permit is held by itself, so that exactly one is
-- free then; no hold has ended; the head of the queue wants one, the next one some, and both are alive. No row: the slow
-- path.
SELECT t.now, max(l.token + 1, t.now), one.number, one.claim, one.attempt, one.owner, one.instance, one.host, one.pid,
       two.instance, two.attempt, two.claim
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN holdfast_locks AS l
 CROSS JOIN holdfast_holds AS ours ON ours.lock_key = :key AND ours.attempt = :attempt AND ours.token = :token
 CROSS JOIN holdfast_tickets AS one ON one.lock_key = :key
        AND one.number = (SELECT number FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT 1)
  LEFT JOIN holdfast_tickets AS two ON two.lock_key = :key
        AND two.number = (SELECT number FROM holdfast_tickets
                           WHERE lock_key = :key AND number > one.number ORDER BY number LIMIT 1)
 WHERE l.lock_key = :key AND l.holds > 1 AND l.notes = :full_notes
   AND NOT EXISTS (SELECT 1 FROM holdfast_holds AS h
                    WHERE h.lock_key = :key AND (h.terms IS NOT l.notes OR h.expires_at <= t.now))
   AND one.terms = l.notes AND one.expires_at > t.now
   AND (two.number IS NULL OR (two.expires_at > t.now AND two.terms LIKE '{"mode":"permits",%'));

-- name: move_hold
-- One hold becomes the other, on the same terms: that writes less than to delete one and to make one.
UPDATE holdfast_holds
   SET attempt = :winner, owner = :owner, instance = :instance, host = :host, pid = :pid,
       token = :token, claimed = 0, expires_at = :expires_at, granted_at = :granted_at
 WHERE lock_key = :key AND attempt = :attempt;

-- name: pass_permit
-- Brings the lock's row up to its holds, of which one was replaced: a row with when the first of them ends.
UPDATE holdfast_locks
   SET token = :token, waiters = waiters - 1,
       (owner, granted_at, instance, host, pid, claimed) =
       (SELECT owner, granted_at, instance, host, pid, claimed FROM holdfast_holds
         WHERE lock_key = :key ORDER BY token, granted_at, attempt LIMIT 1),
       expires_at = (SELECT max(expires_at) FROM holdfast_holds WHERE lock_key = :key)
 WHERE lock_key = :key
RETURNING (SELECT min(expires_at) FROM holdfast_holds WHERE lock_key = :key);

-- name: begin
BEGIN IMMEDIATE;

-- name: save
-- In a group of requests, before one that takes several statements: so that it can fail alone.
SAVEPOINT request;

-- name: undo
ROLLBACK TO request;

-- name: forget
RELEASE request;

-- name: insert_lock
INSERT INTO holdfast_locks (lock_key, token, owner, attempt, claimed, expires_at, granted_at, instance, host, pid,
                            last_attempt, holds, waiters, next_ticket, events, notes)
VALUES (:key, :token, :owner, :attempt, :claimed, :expires_at, :granted_at, :instance, :host, :pid,
        :last_attempt, :holds, :waiters, :next_ticket, :events, :notes);

-- name: read_holds_of
-- The same of many keys.
SELECT h.lock_key, h.attempt, h.expires_at, h.claimed, h.owner, h.token, h.terms, h.granted_at, h.instance, h.host, h.pid
  FROM json_each(:keys) AS k CROSS JOIN holdfast_holds AS h ON h.lock_key = k.value
 ORDER BY h.lock_key, h.token, h.granted_at, h.attempt;

-- name: live_instances
-- Who has waited longest is told first.
SELECT instance, count(*) FROM holdfast_tickets WHERE lock_key = :key AND expires_at > :clock
 GROUP BY instance ORDER BY min(number);

-- name: end_tickets
-- Those who wait are told the same, all at once.
INSERT INTO holdfast_ended (lock_key, attempt, why, broken_by, reason, until_at)
SELECT lock_key, attempt, :why, NULL, :reason, :until_at
  FROM holdfast_tickets WHERE lock_key = :key AND expires_at > :clock
    ON CONFLICT (lock_key, attempt) DO UPDATE
   SET why = excluded.why, broken_by = excluded.broken_by, reason = excluded.reason, until_at = excluded.until_at;

-- name: end_outcome
-- It is told to nobody but those who waited for it.
UPDATE holdfast_outcomes SET until_at = min(until_at, :until_at) WHERE lock_key = :key AND token = :token;

-- name: renew_lease
-- Run for each lease of a batch, in one transaction: SQLite has no round trips to save, and a join with a list of
-- leases would be at the mercy of the planner (after ANALYZE of a small table it scanned a large one). Matches
-- only what is ours, alive, and not held for longer already.
UPDATE holdfast_locks SET expires_at = :end, claimed = 1
 WHERE lock_key = :key AND attempt = :attempt AND token = :token
   AND expires_at > :now AND expires_at <= :end;

-- name: read_leases
-- Of a batch of leases: the place of each that has a hold, alive or not, its end, and whether it is in the table of holds.
SELECT json_extract(a.value, '$.place'), coalesce(h.expires_at, l.expires_at), h.attempt IS NOT NULL
  FROM json_each(:leases) AS a
 CROSS JOIN holdfast_locks AS l ON l.lock_key = json_extract(a.value, '$.key')
  LEFT JOIN holdfast_holds AS h ON h.lock_key = l.lock_key AND h.attempt = json_extract(a.value, '$.attempt')
        AND h.token = json_extract(a.value, '$.token')
 WHERE h.attempt IS NOT NULL
    OR (l.attempt = json_extract(a.value, '$.attempt') AND l.token = json_extract(a.value, '$.token'));

-- name: renew_hold
UPDATE holdfast_holds SET expires_at = :end, claimed = 1 WHERE lock_key = :key AND attempt = :attempt;

-- name: renew_lock
-- After renew_hold. The row says whether the lease that was granted first is claimed.
UPDATE holdfast_locks AS l
   SET expires_at = max(l.expires_at, :end),
       claimed = CASE WHEN l.claimed = 1 THEN 1 ELSE
           (SELECT max(h.claimed) FROM holdfast_holds AS h
             WHERE h.lock_key = l.lock_key
               AND h.token = (SELECT min(f.token) FROM holdfast_holds AS f WHERE f.lock_key = l.lock_key)) END
 WHERE l.lock_key = :key;

-- name: refresh_ticket
-- Asking again says where we can be reached now.
UPDATE holdfast_tickets
   SET expires_at = max(expires_at, :expires_at), instance = :instance, host = :host, pid = :pid
 WHERE lock_key = :key AND attempt = :attempt;

-- name: keep_ticket
UPDATE holdfast_tickets SET expires_at = max(expires_at, :expires_at)
 WHERE lock_key = :key AND attempt = :attempt;

-- name: waited_for
-- Locks and the tickets at their heads: what has to be settled, and what their waiters want to know. CROSS JOIN:
-- each key is looked up, whatever the planner makes of the list.
SELECT l.lock_key, :clock, l.owner, l.expires_at, l.holds, t.attempt, t.expires_at, l.notes
  FROM json_each(:keys) AS k
 CROSS JOIN holdfast_locks AS l ON l.lock_key = k.value
  LEFT JOIN holdfast_tickets AS t
         ON t.lock_key = l.lock_key
        AND t.number = (SELECT min(number) FROM holdfast_tickets AS h WHERE h.lock_key = l.lock_key);

-- name: lock_row
-- In a caller's transaction: become the writer, whatever it has done so far.
UPDATE holdfast_meta SET id = id WHERE id = 1 AND :key IS NOT NULL;

-- name: lock_row_at_once
-- The same: whoever is the writer has all rows.
UPDATE holdfast_meta SET id = id WHERE id = 1 AND :key IS NOT NULL RETURNING 1;

-- name: probe_pin
SELECT 1 WHERE :key IS NOT NULL;

-- name: fence
-- In the caller's transaction, to its end: it becomes the file's only writer.
UPDATE holdfast_locks SET token = token WHERE lock_key = :key AND token = :token RETURNING 1;

-- name: fence_seen
SELECT 1 FROM holdfast_locks WHERE lock_key = :key AND token = :token;

-- name: inspect
SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks WHERE lock_key = :key;

-- name: list
-- :from_key is the later of the prefix and the key to go on after. :to_key ends the prefix, if anything does; an empty
-- blob comes after every text. Both bound the search; the + keeps the third from being chosen for it.
SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks
 WHERE lock_key >= :from_key AND lock_key < coalesce(:to_key, x'') AND +lock_key > :after
   AND CASE :state WHEN 'held' THEN owner IS NOT NULL AND expires_at > :now
                   WHEN 'expired' THEN (attempt IS NOT NULL OR holds > 0) AND expires_at <= :now
                   WHEN 'free' THEN owner IS NULL OR (attempt IS NULL AND holds = 0 AND expires_at <= :now)
                   ELSE 1 END
 ORDER BY lock_key LIMIT :limit;

-- name: list_by_owner
-- Whoever was granted it first is in the row, or whose expiry keeps it shut, until that is over; all others are only in
-- their holds. Both come in the order of the keys, and are merged.
SELECT l.lock_key, l.token, l.owner, l.claimed, l.expires_at, l.granted_at, l.host, l.pid, l.holds, l.waiters, l.notes
  FROM holdfast_locks AS l INDEXED BY holdfast_locks_by_owner
 WHERE l.owner = :owner AND l.lock_key >= :from_key AND l.lock_key < coalesce(:to_key, x'') AND +l.lock_key > :after
   AND (l.attempt IS NOT NULL OR l.holds > 0 OR l.expires_at > :now)
   AND :owned_in_state
 UNION ALL
SELECT h.lock_key, l.token, l.owner, l.claimed, l.expires_at, l.granted_at, l.host, l.pid, l.holds, l.waiters, l.notes
  FROM holdfast_holds AS h INDEXED BY holdfast_holds_by_owner
 CROSS JOIN holdfast_locks AS l ON l.lock_key = h.lock_key
 WHERE h.owner = :owner AND l.owner <> :owner
   AND h.lock_key >= :from_key AND h.lock_key < coalesce(:to_key, x'') AND +h.lock_key > :after
   AND h.attempt = (SELECT min(attempt) FROM holdfast_holds WHERE owner = :owner AND lock_key = h.lock_key)
   AND :owned_in_state
 ORDER BY 1 LIMIT :limit;

-- name: sweep_expired
SELECT lock_key FROM holdfast_locks INDEXED BY holdfast_locks_by_expiry
 WHERE owner IS NOT NULL AND expires_at <= :now ORDER BY expires_at LIMIT :limit;

-- name: sweep_walk
SELECT lock_key, token, owner IS NULL AND expires_at <= :idle_since, waiters
  FROM holdfast_locks WHERE lock_key > :after ORDER BY lock_key LIMIT :limit;

-- name: delete_idle
DELETE FROM holdfast_locks
 WHERE lock_key IN (SELECT value FROM json_each(:keys))
   AND owner IS NULL AND waiters = 0 AND expires_at <= :idle_since
RETURNING 1;

-- name: delete_ended
DELETE FROM holdfast_ended
 WHERE (lock_key, attempt) IN (SELECT lock_key, attempt FROM holdfast_ended INDEXED BY holdfast_ended_by_time
                                WHERE until_at <= :now ORDER BY until_at LIMIT :limit)
RETURNING 1;

-- name: delete_outcomes
DELETE FROM holdfast_outcomes
 WHERE (lock_key, token) IN (SELECT lock_key, token FROM holdfast_outcomes INDEXED BY holdfast_outcomes_by_time
                              WHERE until_at <= :now ORDER BY until_at LIMIT :limit)
RETURNING 1;

-- name: delete_history
DELETE FROM holdfast_history
 WHERE (lock_key, number) IN (SELECT lock_key, number FROM holdfast_history INDEXED BY holdfast_history_by_time
                               WHERE at <= :before ORDER BY at LIMIT :limit)
RETURNING 1;

-- name: is_waited_for
-- Whether an owner has something that somebody waits for: only then may its own waiting close a circle.
SELECT EXISTS (SELECT 1 FROM holdfast_locks INDEXED BY holdfast_locks_by_owner WHERE owner = :owner AND waiters > 0)
    OR EXISTS (SELECT 1 FROM holdfast_holds AS h INDEXED BY holdfast_holds_by_owner
                CROSS JOIN holdfast_locks AS l ON l.lock_key = h.lock_key
                WHERE h.owner = :owner AND l.waiters > 0);

-- name: wanted_by
SELECT DISTINCT t.lock_key
  FROM json_each(:owners) AS o
 CROSS JOIN holdfast_tickets AS t INDEXED BY holdfast_tickets_by_owner ON t.owner = o.value;

-- name: holds_at
SELECT l.lock_key, l.owner, l.attempt, NULL, l.token
  FROM json_each(:keys) AS k CROSS JOIN holdfast_locks AS l ON l.lock_key = k.value
 WHERE l.holds = 0 AND l.owner IS NOT NULL AND l.attempt IS NOT NULL AND l.expires_at > :clock
 UNION ALL
SELECT h.lock_key, h.owner, h.attempt, h.terms, h.token
  FROM json_each(:keys) AS k CROSS JOIN holdfast_holds AS h ON h.lock_key = k.value
 WHERE h.expires_at > :clock;

-- name: notes_at
SELECT l.lock_key, l.notes FROM json_each(:keys) AS k CROSS JOIN holdfast_locks AS l ON l.lock_key = k.value;

-- name: tickets_at
SELECT t.lock_key, t.owner, t.attempt, t.terms, t.queued_at, t.host, t.pid
  FROM json_each(:keys) AS k CROSS JOIN holdfast_tickets AS t ON t.lock_key = k.value
 WHERE t.expires_at > :clock ORDER BY t.lock_key, t.number;

-- name: feed_lock
-- Whoever is in a transaction that began as a writer is alone.
SELECT last FROM holdfast_feed WHERE id = 1;

-- name: feed_new
SELECT lock_key, number, at FROM holdfast_history INDEXED BY holdfast_history_unplaced
 WHERE feed IS NULL ORDER BY at, lock_key, number LIMIT :limit;

-- name: grant_access
-- What was granted under that id before stays as it is, and is the answer.
INSERT INTO holdfast_access (id, name, digest, rights, created_at, expires_at)
SELECT :id, :name, :digest, :rights, t.now, t.now + :ttl
  FROM (SELECT :clock AS now) AS t WHERE true
    ON CONFLICT (id) DO UPDATE SET id = excluded.id
RETURNING id, name, digest, rights, created_at, expires_at;

-- name: delete_access
DELETE FROM holdfast_access
 WHERE id IN (SELECT id FROM holdfast_access INDEXED BY holdfast_access_by_time
               WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit);

-- name: lock_instance
-- Whoever is in a transaction that began as a writer is alone; so for all that is said to lock, here and below.
SELECT 1 FROM holdfast_instances WHERE id = :id;

-- name: insert_instance
INSERT INTO holdfast_instances
       (id, name, host, pid, address, version, capacity, state, joined_at, beat_at, asked_at, expires_at)
SELECT :id, :name, :host, :pid, :address, :version, :capacity, 'alive', t.now, t.now, t.now, t.now + :ttl
  FROM (SELECT :clock AS now) AS t WHERE true
    ON CONFLICT (id) DO NOTHING
RETURNING 1;

-- name: dead_instances
-- Others that nobody has declared dead yet.
SELECT id, name FROM holdfast_instances INDEXED BY holdfast_instances_by_state
 WHERE state IN ('alive', 'draining') AND expires_at <= :clock AND id <> :id ORDER BY expires_at, id LIMIT :limit;

-- name: delete_instances
-- Whatever their state: who was to be heard of until then is gone.
DELETE FROM holdfast_instances
 WHERE id IN (SELECT id FROM holdfast_instances INDEXED BY holdfast_instances_by_state
               WHERE state IN ('alive', 'draining', 'left', 'dead') AND expires_at <= :before LIMIT :limit)
RETURNING 1;

-- name: lock_work
SELECT :work_columns FROM holdfast_work WHERE work_key = :key;

-- name: new_work
-- A row to be locked, for work that nobody has offered.
INSERT INTO holdfast_work (work_key, type, state, due_at, data, text, max_tries, offered_at)
SELECT :key, :type, 'offered', t.now, 'null', '', 0, t.now
  FROM (SELECT :clock AS now) AS t WHERE true
    ON CONFLICT (work_key) DO NOTHING
RETURNING 1;

-- name: offer_works
-- A row for each that is new: not known, or to be done again.
INSERT INTO holdfast_work AS w (work_key, type, state, due_at, data, text, max_tries, offered_at)
SELECT json_extract(o.value, '$.key'), json_extract(o.value, '$.type'), 'offered',
       coalesce(json_extract(o.value, '$.at'), t.now + json_extract(o.value, '$.delay')),
       json_extract(o.value, '$.data'), '', json_extract(o.value, '$.max_tries'), t.now
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN json_each(:works) AS o
 WHERE true
    ON CONFLICT (work_key) DO UPDATE
   SET state = 'offered', due_at = excluded.due_at, data = excluded.data, text = '', tries = 0,
       max_tries = excluded.max_tries, instance = '', attempt = '', token = 0, claim = 0,
       offered_at = excluded.offered_at, assigned_at = NULL
 WHERE :again AND w.state IN ('completed', 'failed') RETURNING work_key, type, due_at <= offered_at;

-- name: work_states
SELECT w.work_key, w.state FROM json_each(:keys) AS k CROSS JOIN holdfast_work AS w ON w.work_key = k.value;

-- name: begin_claim
-- The fast path of a claim, to its end: the instance, and whether there is anything to be looked at first. Work is taken
-- piece by piece, and not by lists: there are no round trips to save, and a list costs more than a row.
SELECT :clock, i.state, i.expires_at, i.capacity, i.claims, i.load,
       (SELECT token_floor FROM holdfast_meta WHERE id = 1),
       EXISTS (SELECT 1 FROM json_each(:types) AS k
                WHERE EXISTS (SELECT 1 FROM holdfast_work INDEXED BY holdfast_work_by_due
                               WHERE state = 'assigned' AND type = k.value
                                 AND due_at <= :clock))
  FROM holdfast_instances AS i WHERE i.id = :id;

-- name: count_assigned
SELECT count(*) FROM holdfast_work INDEXED BY holdfast_work_by_instance WHERE instance = :id AND state = 'assigned';

-- name: pick_free
SELECT w.rowid, w.work_key, w.due_at, w.data, w.tries, l.token,
       l.lock_key IS NULL OR (l.owner IS NULL AND l.waiters = 0 AND l.holds = 0 AND l.notes IS NULL)
  FROM holdfast_work AS w INDEXED BY holdfast_work_by_due
  LEFT JOIN holdfast_locks AS l ON l.lock_key = w.work_key
 WHERE w.state = 'offered' AND w.type = :type AND w.due_at <= :now ORDER BY w.due_at, w.work_key LIMIT :limit;

-- name: take_lock
INSERT INTO holdfast_locks (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
VALUES (:key, :token, :owner, :attempt, :now, :end, :instance, :host, :pid)
    ON CONFLICT (lock_key) DO UPDATE
   SET token = excluded.token, owner = excluded.owner, attempt = excluded.attempt, claimed = 1,
       granted_at = excluded.granted_at, expires_at = excluded.expires_at,
       instance = excluded.instance, host = excluded.host, pid = excluded.pid;

-- name: take_work
UPDATE holdfast_work
   SET state = 'assigned', due_at = :end, tries = tries + 1, instance = :owner, attempt = :attempt, token = :token,
       claim = :number, assigned_at = :now
 WHERE rowid = :row;

-- name: end_claim
UPDATE holdfast_instances
   SET claims = :number, asked_at = :now, load = :load, wants = :wants, address = :address, host = :host, pid = :pid
 WHERE id = :id;

-- name: due_assigned
-- Work that is assigned and due, of each type up to a limit, with what its lock's row says.
SELECT w.work_key, w.type, w.state, w.due_at, w.data, w.text, w.tries, w.max_tries, w.instance, w.attempt, w.token, w.claim, w.offered_at, w.assigned_at, l.attempt, l.expires_at, l.holds, l.waiters, l.notes IS NULL, t.now
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN json_each(:types) AS k
 CROSS JOIN holdfast_work AS w
    ON w.work_key IN (SELECT s.work_key FROM holdfast_work AS s INDEXED BY holdfast_work_by_due
                       WHERE s.state = 'assigned' AND s.type = k.value AND s.due_at <= t.now
                       ORDER BY s.due_at, s.work_key LIMIT :limit)
  LEFT JOIN holdfast_locks AS l ON l.lock_key = w.work_key
 ORDER BY k.key, w.due_at, w.work_key;

-- name: move_due
UPDATE holdfast_work
   SET due_at = (SELECT json_extract(m.value, '$.due') FROM json_each(:works) AS m
                  WHERE json_extract(m.value, '$.key') = work_key)
 WHERE work_key IN (SELECT json_extract(m.value, '$.key') FROM json_each(:works) AS m);

-- name: pick_work
-- Work that is offered and due, of each type up to a limit, and whether its lock seems to be free.
SELECT w.work_key, w.due_at,
       l.lock_key IS NULL OR (l.owner IS NULL AND l.waiters = 0 AND l.holds = 0 AND l.notes IS NULL), t.now
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN json_each(:types) AS k
 CROSS JOIN holdfast_work AS w
    ON w.work_key IN (SELECT s.work_key FROM holdfast_work AS s INDEXED BY holdfast_work_by_due
                       WHERE s.state = 'offered' AND s.type = k.value AND s.due_at <= t.now
                       ORDER BY s.due_at, s.work_key LIMIT :limit)
  LEFT JOIN holdfast_locks AS l ON l.lock_key = w.work_key
 ORDER BY k.key, w.due_at, w.work_key;

-- name: try_lock_rows
SELECT l.lock_key, 1 FROM json_each(:keys) AS k CROSS JOIN holdfast_locks AS l ON l.lock_key = k.value;

-- name: take_locks
-- Grants the locks of work that were seen to be free, in this transaction.
INSERT INTO holdfast_locks AS l
       (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)
SELECT json_extract(k.value, '$.key'), max((SELECT token_floor + 1 FROM holdfast_meta WHERE id = 1), t.now),
       :owner, json_extract(k.value, '$.attempt'), t.now, t.now + :ttl, :instance, :host, :pid
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN json_each(:works) AS k
 WHERE true
    ON CONFLICT (lock_key) DO UPDATE
   SET token = max(l.token + 1, excluded.granted_at), granted_at = excluded.granted_at, expires_at = excluded.expires_at,
       owner = excluded.owner, attempt = excluded.attempt, claimed = 1,
       instance = excluded.instance, host = excluded.host, pid = excluded.pid
 WHERE l.owner IS NULL AND l.waiters = 0 AND l.holds = 0 AND l.notes IS NULL;

-- name: take_works
-- Assigns the work whose locks were granted just now.
UPDATE holdfast_work
   SET state = 'assigned', instance = :id, claim = :number, tries = tries + 1,
       (attempt, token, assigned_at, due_at) =
       (SELECT l.attempt, l.token, l.granted_at, l.expires_at FROM holdfast_locks AS l WHERE l.lock_key = work_key)
 WHERE work_key IN (SELECT json_extract(k.value, '$.key')
                      FROM json_each(:works) AS k
                     CROSS JOIN holdfast_locks AS l ON l.lock_key = json_extract(k.value, '$.key')
                     WHERE l.attempt = json_extract(k.value, '$.attempt'))
RETURNING work_key, attempt, token, data, tries, assigned_at, due_at;

-- name: claimed_before
-- What an instance still has of an earlier claim.
SELECT w.work_key, w.attempt, w.token, w.data, w.tries, coalesce(h.expires_at, l.expires_at), t.now
  FROM (SELECT :clock AS now) AS t
 CROSS JOIN holdfast_work AS w INDEXED BY holdfast_work_by_instance
 CROSS JOIN holdfast_locks AS l ON l.lock_key = w.work_key
  LEFT JOIN holdfast_holds AS h ON l.holds > 0 AND h.lock_key = w.work_key AND h.attempt = w.attempt
 WHERE w.instance = :id AND w.state = 'assigned' AND w.claim = :number
   AND CASE l.holds WHEN 0 THEN l.attempt = w.attempt ELSE h.attempt IS NOT NULL END
   AND coalesce(h.expires_at, l.expires_at) > t.now;

-- name: next_due
-- When the first of these types can be claimed, and when the first is to be looked at.
SELECT :clock,
       (SELECT min((SELECT min(due_at) FROM holdfast_work INDEXED BY holdfast_work_by_due
                     WHERE state = 'offered' AND type = k.value)) FROM json_each(:types) AS k),
       (SELECT min((SELECT min(due_at) FROM holdfast_work INDEXED BY holdfast_work_by_due
                     WHERE state = 'assigned' AND type = k.value)) FROM json_each(:types) AS k);

-- name: list_work_of
SELECT :work_columns
  FROM holdfast_work
 WHERE work_key IN (
           SELECT * FROM (SELECT work_key FROM holdfast_work :by_instance
                           WHERE instance = :instance AND state = 'offered' AND coalesce(:state, 'offered') = 'offered'
                             AND :work_page)
            UNION ALL
           SELECT * FROM (SELECT work_key FROM holdfast_work :by_instance
                           WHERE instance = :instance AND state = 'assigned' AND coalesce(:state, 'assigned') = 'assigned'
                             AND :work_page)
            UNION ALL
           SELECT * FROM (SELECT work_key FROM holdfast_work :by_instance
                           WHERE instance = :instance AND state = 'completed' AND coalesce(:state, 'completed') = 'completed'
                             AND :work_page)
            UNION ALL
           SELECT * FROM (SELECT work_key FROM holdfast_work :by_instance
                           WHERE instance = :instance AND state = 'failed' AND coalesce(:state, 'failed') = 'failed'
                             AND :work_page))
 ORDER BY work_key LIMIT :limit;

-- name: count_work
-- Reads all that is not completed, and of that only the index.
SELECT type, sum(state = 'offered'), sum(state = 'assigned'), sum(state = 'failed'),
       min(CASE state WHEN 'offered' THEN due_at END), :clock
  FROM holdfast_work INDEXED BY holdfast_work_by_due WHERE state IN ('offered', 'assigned', 'failed')
 GROUP BY type ORDER BY type;

-- name: delete_works
DELETE FROM holdfast_work
 WHERE work_key IN (SELECT work_key FROM holdfast_work INDEXED BY holdfast_work_by_end
                     WHERE state IN ('completed', 'failed') AND due_at <= :before ORDER BY due_at LIMIT :limit)
RETURNING 1;
