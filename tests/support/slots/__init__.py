"""Two shards between which slots move, a cluster manager's record, and what stands in the way."""
