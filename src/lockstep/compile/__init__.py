"""From a plan to Spark DataFrames: one `lower` function per step, found by dispatch.

Nothing is imported here: Spark's Python workers need only small parts of this folder, and start for every query.
"""
