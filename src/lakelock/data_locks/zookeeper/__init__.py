"""Data locks as queues of nodes in ZooKeeper."""
