"""Jobs run from Python: ``job.run()``, ``job.start()``, results as tables, live pictures in a notebook."""
