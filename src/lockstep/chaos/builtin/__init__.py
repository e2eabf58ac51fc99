"""The job that `lockstep chaos run` uses when none is given: its input, the job itself, and the answer in Python."""
