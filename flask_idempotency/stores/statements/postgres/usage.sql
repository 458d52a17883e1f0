-- Count what a scope has that is live, but for one record: how many, and the bytes of their answers and stored requests.
-- No more than so many are looked at.
SELECT count(*), coalesce(sum(size), 0)
  FROM (SELECT coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0)
               + CASE WHEN r.state = 'finished' THEN 0 ELSE
                      coalesce((SELECT octet_length(result)
                                  FROM idempotency_checkpoint
                                 WHERE record_id = r.id AND kind = 'request'), 0) END AS size
          FROM idempotency_record AS r
         WHERE scope = :scope AND id <> :id AND (state <> 'finished' OR expires_at > clock_timestamp())
         LIMIT :most) AS live
