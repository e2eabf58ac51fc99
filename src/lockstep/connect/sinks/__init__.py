"""The working sides of the sinks, one file each."""
