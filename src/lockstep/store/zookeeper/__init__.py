"""A job's store in ZooKeeper, for replicas on several hosts: it survives the loss of members of its ensemble."""
