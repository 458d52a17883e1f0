-- The partitions in which a record may count: the open one, and those of the days that have not passed.
-- Days are those of UTC, counted from 2000. The statement's time, and not the clock's, lets the server skip the others.
(day = 0 OR day >= (statement_timestamp() AT TIME ZONE 'UTC')::date - DATE '2000-01-01')
