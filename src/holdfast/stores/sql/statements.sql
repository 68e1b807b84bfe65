-- Statements that are the same in several databases. What one of them says otherwise is in its own file, which also has
-- what :clock stands for, and the index that a statement has to go by, where a database must be told:
--
-- :primary =
-- :by_instance =
-- :by_state =
-- :by_feed =
--
-- :work_columns = work_key, type, state, due_at, data, text, tries, max_tries, instance, attempt, token, claim, offered_at, assigned_at
-- :work_page = work_key >= :from_key AND (work_key < :to_key OR :to_key IS NULL) AND work_key > :after
--           ORDER BY work_key LIMIT :limit
-- :owned_in_state = CASE :state WHEN 'held' THEN l.expires_at > :now WHEN 'expired' THEN l.expires_at <= :now
--           WHEN 'free' THEN false ELSE true END

-- name: now
SELECT :clock;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: read_lock
-- Always one row: the time; the floor of tokens; the lock, if there is one; how the attempt ended; its ticket; the winner
-- of a hand-over, and who is head after it. The history is asked only for a row that does not count its events: MySQL
-- would read a subquery without l.events each time.
SELECT t.now, (SELECT token_floor FROM holdfast_meta WHERE id = 1),
       l.token, l.owner, l.attempt, l.claimed, l.expires_at, l.granted_at, l.instance, l.host, l.pid,
       l.last_attempt, l.holds, l.waiters, l.next_ticket,
       coalesce(l.events, (SELECT max(number) FROM holdfast_history WHERE lock_key = :key AND l.events IS NULL), 0), l.notes,
       e.why, e.broken_by, e.reason, mine.number, mine.owner,
       one.number, one.attempt, one.owner, one.instance, one.host, one.pid, one.claim, one.expires_at, one.terms,
       two.number, two.attempt, two.owner, two.instance, two.host, two.pid, two.claim, two.expires_at, two.terms
  FROM (SELECT :clock AS now) AS t
  LEFT JOIN holdfast_locks AS l :primary ON l.lock_key = :key
  LEFT JOIN holdfast_ended AS e ON e.lock_key = :key AND e.attempt = :attempt AND e.until_at > t.now
  LEFT JOIN holdfast_tickets AS mine ON l.waiters > 0 AND mine.lock_key = :key AND mine.attempt = :attempt
  LEFT JOIN holdfast_tickets AS one ON l.waiters > 0 AND one.lock_key = :key
        AND one.number = (SELECT min(number) FROM holdfast_tickets WHERE lock_key = :key)
  LEFT JOIN holdfast_tickets AS two ON l.waiters > 1 AND two.lock_key = :key
        AND two.number = (SELECT min(number) FROM holdfast_tickets WHERE lock_key = :key AND number > one.number);

-- name: write_lock
UPDATE holdfast_locks :primary
   SET token = :token, owner = :owner, attempt = :attempt, claimed = :claimed, expires_at = :expires_at,
       granted_at = :granted_at, instance = :instance, host = :host, pid = :pid, last_attempt = :last_attempt,
       holds = :holds, waiters = :waiters, next_ticket = :next_ticket, events = :events, notes = :notes
 WHERE lock_key = :key;

-- name: write_ended
INSERT INTO holdfast_ended (lock_key, attempt, why, broken_by, reason, until_at)
VALUES (:key, :attempt, :why, :by, :reason, :until_at)
    ON CONFLICT (lock_key, attempt) DO UPDATE
   SET why = excluded.why, broken_by = excluded.broken_by, reason = excluded.reason, until_at = excluded.until_at;

-- name: read_holds
SELECT attempt, expires_at, claimed, owner, token, terms, granted_at, instance, host, pid
  FROM holdfast_holds :primary WHERE lock_key = :key ORDER BY token, granted_at, attempt;

-- name: write_hold
INSERT INTO holdfast_holds
       (lock_key, attempt, owner, token, terms, claimed, expires_at, granted_at, instance, host, pid)
VALUES (:key, :attempt, :owner, :token, :terms, :claimed, :expires_at, :granted_at, :instance, :host, :pid)
    ON CONFLICT (lock_key, attempt) DO UPDATE
   SET terms = excluded.terms, claimed = excluded.claimed, expires_at = excluded.expires_at,
       instance = excluded.instance, host = excluded.host, pid = excluded.pid;

-- name: delete_hold
DELETE FROM holdfast_holds WHERE lock_key = :key AND attempt = :attempt;

-- name: delete_holds
DELETE FROM holdfast_holds WHERE lock_key = :key;

-- name: queue_head
SELECT number, attempt, owner, instance, host, pid, claim, expires_at, terms
  FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT 2;

-- name: queue
INSERT INTO holdfast_tickets
       (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at, terms)
VALUES (:key, :number, :attempt, :owner, :instance, :host, :pid, :claim, :queued_at, :expires_at, :terms);

-- name: find_ticket
SELECT instance, terms FROM holdfast_tickets WHERE lock_key = :key AND attempt = :attempt;

-- name: delete_ticket
DELETE FROM holdfast_tickets WHERE lock_key = :key AND number = :number;

-- name: delete_tickets
DELETE FROM holdfast_tickets WHERE lock_key = :key;

-- name: all_tickets
SELECT number, attempt, instance, terms FROM holdfast_tickets :primary WHERE lock_key = :key ORDER BY number;

-- name: write_outcome
INSERT INTO holdfast_outcomes (lock_key, token, succeeded, text, until_at)
VALUES (:key, :token, :succeeded, :text, :until_at)
    ON CONFLICT (lock_key, token) DO UPDATE
   SET succeeded = excluded.succeeded, text = excluded.text, until_at = excluded.until_at;

-- name: end_outcome
-- It is told to nobody but those who waited for it.
UPDATE holdfast_outcomes SET until_at = least(until_at, :until_at) WHERE lock_key = :key AND token = :token;

-- name: read_outcome
SELECT succeeded, text FROM holdfast_outcomes WHERE lock_key = :key AND token = :token;

-- name: tickets_before
SELECT count(*) FROM holdfast_tickets WHERE lock_key = :key AND number < :number;

-- name: refresh_ticket
-- Asking again says where we can be reached now.
UPDATE holdfast_tickets
   SET expires_at = greatest(expires_at, :expires_at), instance = :instance, host = :host, pid = :pid
 WHERE lock_key = :key AND attempt = :attempt;

-- name: store_id
SELECT store_id FROM holdfast_meta WHERE id = 1;

-- name: inspect
-- A row that was made only to be locked is no lock; one whose capacity was said is.
SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks WHERE lock_key = :key AND (token > 0 OR notes IS NOT NULL);

-- name: waiters
SELECT owner, host, pid, queued_at FROM holdfast_tickets WHERE lock_key = :key ORDER BY number LIMIT :limit;

-- name: list
-- :from_key is the later of the prefix and the key to go on after. :to_key ends the prefix, if anything does.
SELECT lock_key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiters, notes
  FROM holdfast_locks :primary
 WHERE lock_key >= :from_key AND (lock_key < :to_key OR :to_key IS NULL) AND lock_key > :after
   AND (token > 0 OR notes IS NOT NULL)
   AND CASE :state WHEN 'held' THEN owner IS NOT NULL AND expires_at > :now
                   WHEN 'expired' THEN (attempt IS NOT NULL OR holds > 0) AND expires_at <= :now
                   WHEN 'free' THEN owner IS NULL OR (attempt IS NULL AND holds = 0 AND expires_at <= :now)
                   ELSE true END
 ORDER BY lock_key LIMIT :limit;

-- name: write_event
INSERT INTO holdfast_history (lock_key, number, kind, at, token, owner, caused_by, reason)
VALUES (:key, :number, :kind, :at, :token, :owner, :by, :reason);

-- name: history
SELECT number, kind, at, token, owner, caused_by, reason, feed
  FROM holdfast_history :primary WHERE lock_key = :key ORDER BY number DESC LIMIT :limit;

-- name: feed_lock
SELECT last FROM holdfast_feed WHERE id = 1 FOR UPDATE;

-- name: feed_last
SELECT last FROM holdfast_feed WHERE id = 1;

-- name: feed_place
UPDATE holdfast_history :primary SET feed = :feed WHERE lock_key = :key AND number = :number AND at = :at;

-- name: feed_end
UPDATE holdfast_feed SET last = :last WHERE id = 1;

-- name: feed_read
SELECT feed, lock_key, number, kind, at, token, owner, caused_by, reason
  FROM holdfast_history :by_feed WHERE feed > :after ORDER BY feed LIMIT :limit;

-- name: sweep_walk
SELECT lock_key, token, owner IS NULL AND expires_at <= :idle_since, waiters
  FROM holdfast_locks :primary
 WHERE lock_key > :after AND (token > 0 OR notes IS NOT NULL) ORDER BY lock_key LIMIT :limit;

-- name: dead_tickets
SELECT number FROM holdfast_tickets :primary
 WHERE lock_key = :key AND expires_at <= :now ORDER BY number LIMIT :limit;

-- name: raise_floor
-- Committed before the rows are deleted: whoever inserts one of them anew must find it.
UPDATE holdfast_meta SET token_floor = :token WHERE id = 1 AND token_floor < :token;

-- name: revoke_access
DELETE FROM holdfast_access WHERE id = :id RETURNING id, name, digest, rights, created_at, expires_at;

-- name: list_access
SELECT id, name, digest, rights, created_at, expires_at FROM holdfast_access :primary
 WHERE expires_at IS NULL OR expires_at > :clock ORDER BY id;

-- name: lock_instance
-- First of all rows that a request locks, before that of any work.
SELECT 1 FROM holdfast_instances :primary WHERE id = :id FOR UPDATE;

-- name: read_instance
-- Always one row: the time, the instance if there is one, and how much work it has. After lock_instance, so that all
-- is as it is after the wait.
SELECT t.now, i.state, i.name, i.capacity, i.expires_at, i.beat_at, i.address, i.host, i.pid, i.claims, i.asked_at, i.wants,
       (SELECT count(*) FROM holdfast_work :by_instance WHERE instance = :id AND state = 'assigned')
  FROM (SELECT :clock AS now) AS t
  LEFT JOIN holdfast_instances AS i :primary ON i.id = :id;

-- name: write_instance
UPDATE holdfast_instances
   SET state = :state, expires_at = :expires_at, beat_at = :beat_at, address = :address, host = :host, pid = :pid,
       claims = :claims, load = :load, asked_at = :asked_at, wants = :wants
 WHERE id = :id;

-- name: count_living
SELECT count(*) FROM holdfast_instances :by_state WHERE state = 'alive' AND expires_at > :now;

-- name: list_instances
SELECT i.id, i.name, i.host, i.pid, i.version, i.state, i.capacity,
       (SELECT count(*) FROM holdfast_work AS w :by_instance WHERE w.instance = i.id AND w.state = 'assigned'),
       i.joined_at, i.beat_at, i.expires_at
  FROM holdfast_instances AS i :primary WHERE i.id > :after ORDER BY i.id LIMIT :limit;

-- name: wanting
-- Who wants work of a type, and has waited longest. Of all that are alive: they are few, and claims write them often.
SELECT id, address FROM holdfast_instances :by_state
 WHERE state = 'alive' AND expires_at > :clock AND instr(wants, :wanted) > 0 ORDER BY asked_at, id LIMIT :limit;

-- name: note_instance
INSERT INTO holdfast_history (lock_key, number, kind, at, token, owner)
SELECT :key, coalesce(max(number), 0) + 1, :kind, :at, 0, :owner
  FROM holdfast_history :primary WHERE lock_key = :key;

-- name: declare_dead
UPDATE holdfast_instances :primary SET state = 'dead' WHERE id = :id;

-- name: uncount_events
-- In case there is a lock of that name as well: the number of its last event is to be looked up.
UPDATE holdfast_locks :primary SET events = NULL WHERE lock_key = :key;

-- name: lock_work
SELECT :work_columns FROM holdfast_work :primary WHERE work_key = :key FOR UPDATE;

-- name: read_work
SELECT :work_columns FROM holdfast_work :primary WHERE work_key = :key;

-- name: write_work
UPDATE holdfast_work :primary
   SET type = :type, state = :state, due_at = :due_at, data = :data, text = :text, tries = :tries, max_tries = :max_tries,
       instance = :instance, attempt = :attempt, token = :token, claim = :claim, offered_at = :offered_at,
       assigned_at = :assigned_at
 WHERE work_key = :key;

-- name: delete_work
DELETE FROM holdfast_work WHERE work_key = :key;

-- name: works_of
SELECT work_key, attempt FROM holdfast_work :by_instance WHERE instance = :id AND state = 'assigned' ORDER BY work_key;

-- name: list_work
-- A page's :from_key is the later of the prefix and the key to go on after. :to_key ends the prefix, if anything does.
SELECT :work_columns FROM holdfast_work :primary WHERE (state = :state OR :state IS NULL) AND :work_page;

-- name: list_work_of
-- The index has the states of an instance's work one after the other: each is walked for itself.
(SELECT :work_columns FROM holdfast_work :by_instance
  WHERE instance = :instance AND state = 'offered' AND coalesce(:state, 'offered') = 'offered' AND :work_page)
 UNION ALL
(SELECT :work_columns FROM holdfast_work :by_instance
  WHERE instance = :instance AND state = 'assigned' AND coalesce(:state, 'assigned') = 'assigned' AND :work_page)
 UNION ALL
(SELECT :work_columns FROM holdfast_work :by_instance
  WHERE instance = :instance AND state = 'completed' AND coalesce(:state, 'completed') = 'completed' AND :work_page)
 UNION ALL
(SELECT :work_columns FROM holdfast_work :by_instance
  WHERE instance = :instance AND state = 'failed' AND coalesce(:state, 'failed') = 'failed' AND :work_page)
 ORDER BY work_key LIMIT :limit;

-- name: schema_version
SELECT version FROM holdfast_meta WHERE id = 1;
