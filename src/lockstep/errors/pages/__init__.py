"""What each code means: one file per area."""
