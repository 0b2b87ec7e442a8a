"""Permissions of roles, for tests: a shard that tells them, and a table that follows it."""
