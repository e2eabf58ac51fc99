"""Before a job runs: whether it may, from where it goes on, where what it keeps will be, and the run put together."""
