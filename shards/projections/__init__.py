"""The view of one shard: tables folded from committed events, and how they are read."""
