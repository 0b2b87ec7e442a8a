"""The discovery service: any node answers for any topic, and carries every write to its shard."""
