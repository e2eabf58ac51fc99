"""Many replicas: supervise them, judge divergence, keep what is still needed."""
