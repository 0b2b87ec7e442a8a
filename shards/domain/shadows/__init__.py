"""Shadow topics: what may be one, and what the shard of a source keeps about its shadows."""
