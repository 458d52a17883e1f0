-- Begin to make or upgrade the tables, one at a time.
BEGIN IMMEDIATE
