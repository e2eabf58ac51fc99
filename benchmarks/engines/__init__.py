"""The engines that are compared, and the workloads they are given: same input files, same results, own processes."""
