"""The working sides of the sources, one file each."""
