"""What one Raft group and one shard cost and promise: commits, views, snapshots, the log."""
