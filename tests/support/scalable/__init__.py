"""The brokers' half of scalable topics, in memory, for tests of the shards' half."""
