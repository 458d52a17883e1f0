-- End what an interrupted detach has left.
ALTER TABLE {table} DETACH PARTITION {partition} FINALIZE
