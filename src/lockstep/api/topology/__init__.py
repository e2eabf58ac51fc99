"""Topologies of spouts and bolts, built into jobs."""
