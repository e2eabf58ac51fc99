"""Nexmark: an auction site as a stream, a generator of its events, and queries over them that many systems share."""
