"""The demo: a security monitor whose replicas are killed with -9, measured from outside, every alert checked."""
