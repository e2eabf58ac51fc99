"""`python -m benchmarks compare`: the same workloads on Lockstep and on other engines, measured from outside."""
