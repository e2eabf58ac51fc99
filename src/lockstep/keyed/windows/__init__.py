"""Windows as keyed operators: who is in which window, when results come, and what is computed."""
