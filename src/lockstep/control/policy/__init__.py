"""A job's own decisions about its shape: how many partitions, how many replicas, which one to move, and why."""
