"""How a job is, in words for people."""
