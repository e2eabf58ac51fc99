"""A host's agent: the process that starts, keeps and ends the replicas and spares there, whoever supervises."""
