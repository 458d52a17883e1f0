"""What others got wrong, one test for each: its name is the promise. Longer shows of the same are in other rooms."""
