"""The lock in Redis or Valkey: a key with a TTL, and a queue for those who wait."""
