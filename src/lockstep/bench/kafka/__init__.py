"""A backlog from topic to topic, by Lockstep and by a query hand-written in PySpark with Spark's own connector."""
