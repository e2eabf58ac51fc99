"""`python -m benchmarks api`: events per second of the operators, next to hand-written PySpark for each."""
