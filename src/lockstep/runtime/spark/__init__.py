"""Taming the JVM: a quick start, everything pinned that could make two replicas differ, few calls into it."""
