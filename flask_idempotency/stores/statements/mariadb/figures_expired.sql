-- Count the expired records by their index, the oldest first, and say how long ago that one expired. Are these all?
SELECT COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN(expires_at), UTC_TIMESTAMP(6)), 1
  FROM (SELECT expires_at
          FROM idempotency_record
         WHERE expires_at <= UTC_TIMESTAMP(6)
         ORDER BY expires_at
         LIMIT :limit) AS counted
