-- Count what a scope has that is live, but for one record: how many, and the bytes of their answers and stored requests.
-- No more than so many are looked at.
SELECT count(*), coalesce(sum(size), 0)
  FROM (SELECT coalesce(length(CAST(headers AS BLOB)), 0) + coalesce(length(body), 0)
               + CASE WHEN r.state = 'finished' THEN 0 ELSE
                      coalesce((SELECT length(CAST(result AS BLOB))
                                  FROM idempotency_checkpoint
                                 WHERE record_id = r.id AND kind = 'request'), 0) END AS size
          FROM idempotency_record AS r
         WHERE scope = :scope AND id <> :id
           AND (state <> 'finished' OR expires_at > (julianday('now') - 2440587.5) * 86400.0)
         LIMIT :most) AS live
