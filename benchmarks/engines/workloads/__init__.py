"""The workloads: what is fed, what is to come of it, and the right results computed without any engine."""
