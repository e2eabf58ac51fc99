"""What pages and metrics say of jobs, as plain data: read from a job's store once a second for all viewers."""
