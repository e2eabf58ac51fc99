"""Queries in SQL over the streams of a job: read by sqlglot, turned into the same steps that the methods make."""
