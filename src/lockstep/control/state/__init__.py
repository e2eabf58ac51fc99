"""A job's state as people use it: kept under a name, started from, asked by key."""
