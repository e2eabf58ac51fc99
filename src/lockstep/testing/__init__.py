"""Run whole jobs in tests, on inputs in memory, with epochs cut by hand."""
