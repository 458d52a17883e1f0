-- Count what a scope has that is live, but for one record: how many, and the bytes of their answers and stored requests.
-- No more than so many are looked at.
SELECT COUNT(*), COALESCE(SUM(size), 0)
  FROM (SELECT COALESCE(OCTET_LENGTH(headers), 0) + COALESCE(OCTET_LENGTH(body), 0)
               + IF(r.state = 'finished', 0,
                    COALESCE((SELECT OCTET_LENGTH(result)
                                FROM idempotency_checkpoint
                               WHERE record_id = r.id AND kind = 'request'), 0)) AS size
          FROM idempotency_record AS r
         WHERE scope = :scope AND id <> :id AND (state <> 'finished' OR expires_at > UTC_TIMESTAMP(6))
         LIMIT :most) AS live
