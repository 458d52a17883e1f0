-- Begin to create or upgrade the tables, one process at a time.
BEGIN IMMEDIATE
