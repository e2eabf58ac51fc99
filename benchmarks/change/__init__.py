"""Changes of a running job beside PyFlink: `python -m benchmarks change`."""
