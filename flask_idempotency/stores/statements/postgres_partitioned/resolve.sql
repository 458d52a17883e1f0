-- Settle a quarantined record with an answer given by a person, and move it into the partition of the day of its expiry.
-- No former owner may take it for its own, so the token goes.
-- No row back: it is not quarantined.
WITH quarantined AS (
    DELETE FROM idempotency_record_open
     WHERE id = :id AND state = 'quarantined'
    RETURNING *
)
INSERT INTO idempotency_record
       (id, scope, method, path, fingerprint, state, point, reason, attempt, created_at, day, expires_at, status,
        headers, body)
SELECT id, scope, method, path, fingerprint, 'finished', point,
       coalesce(reason || '; ', '') || :remark
                || to_char(clock_timestamp() AT TIME ZONE 'UTC', '" on "YYYY-MM-DD HH24:MI:SS" UTC"'),
       attempt, created_at, ends.day, ends.at, :status::smallint, :headers::text, :body::bytea
  FROM quarantined, (@ends) AS ends
RETURNING id
