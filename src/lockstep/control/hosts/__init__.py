"""The hosts that a job may use, and its processes there, held through their agents."""
