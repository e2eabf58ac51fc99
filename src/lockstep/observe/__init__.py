"""What is measured and what is promised: latencies, and the promises of the design as predicates over plain data."""
