"""A job from topic to topic on three hosts, while hosts, the coordinator and ZooKeeper's leader are killed under it."""
