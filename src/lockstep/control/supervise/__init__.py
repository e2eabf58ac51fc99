"""The replicas of one job: whom to start, kill, seed and give up, who is right where they differ."""
