"""The lock in ZooKeeper: Curator's queue of ephemeral nodes, as Java Hudi's writers know it."""
