"""What the pages and the metrics say of jobs, as plain data: built from a job's store, once a second for all viewers."""
