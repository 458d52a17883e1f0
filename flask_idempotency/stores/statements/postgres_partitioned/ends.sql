-- When a record that is finished now expires, and which partition that day has: the open one, 0, if it has none.
-- The clock is read once, so that both agree at midnight too.
SELECT at,
       CASE WHEN to_regclass(to_char(at AT TIME ZONE 'UTC', '"idempotency_record_"YYYYMMDD')) IS NULL THEN 0
            ELSE (at AT TIME ZONE 'UTC')::date - DATE '2000-01-01' END AS day
  FROM (SELECT clock_timestamp() + :retention AS at) AS expiry
