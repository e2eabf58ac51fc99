"""State and timers by key: operators, the pages that hold their state, and what users write. No Spark."""
