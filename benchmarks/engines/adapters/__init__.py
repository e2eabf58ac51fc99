"""One adapter for each engine: how to start it, what to kill, where its results are."""
