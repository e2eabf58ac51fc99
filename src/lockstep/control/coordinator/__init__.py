"""Who coordinates a job: the right to it, taking it over, and the processes that do it or wait to."""
