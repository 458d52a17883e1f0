-- Replace a record that no longer counts, because it expired or its lease was ended or has passed, with a finished one.
-- The old record may have been reaped meanwhile. No row back: it counts again, or is being written.
-- Every row that is there must have been deleted: the two counts differ if one counts, or was changed meanwhile.
WITH gone AS (
    DELETE FROM idempotency_record
     WHERE id = :id AND @days
       AND ((state = 'finished' AND expires_at <= clock_timestamp())
            OR (state = 'running' AND point IS NULL AND fingerprint = :fingerprint
                AND (token IS NULL OR lease_until <= clock_timestamp())))
    RETURNING id, day, state, attempt, created_at
), gone_with_it AS (
    DELETE FROM idempotency_checkpoint AS c
     USING gone
     WHERE c.record_id = gone.id AND c.day = gone.day
    RETURNING c.day
)
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, token, attempt, created_at, day, expires_at, status, headers, body)
SELECT :id, :scope, :method, :path, :fingerprint, 'finished', :token,
       coalesce((SELECT max(attempt) FROM gone WHERE state = 'running'), 1),
       coalesce((SELECT min(created_at) FROM gone WHERE state = 'running'), clock_timestamp()),
       ends.day, ends.at, :status::smallint, :headers::text, :body::bytea
  FROM (@ends) AS ends
 WHERE (SELECT count(*) FROM gone) = (SELECT count(*) FROM idempotency_record WHERE id = :id AND @days)
   AND (SELECT count(*) FROM gone_with_it) >= 0
RETURNING set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
