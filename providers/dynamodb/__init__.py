"""The lock in DynamoDB: one item, as Java Hudi's writers know it."""
