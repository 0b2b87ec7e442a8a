"""Load files: an inventory of topics, ready for the shards of one map, and how it gets there."""
