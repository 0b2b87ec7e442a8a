"""An inventory of names, made into load files: per shard, ascending, each name once."""
