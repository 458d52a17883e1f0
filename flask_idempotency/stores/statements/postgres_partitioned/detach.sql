-- Take a partition out of its table, beside all others who use it: this waits for them, and nobody for this.
-- If it is interrupted, the partition is out of use all the same; finish_detaching does the rest.
ALTER TABLE {table} DETACH PARTITION {partition} CONCURRENTLY
