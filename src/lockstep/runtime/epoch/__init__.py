"""Running an epoch: seal it, read it, compute it, digest it, publish it, let the stages go on together."""
