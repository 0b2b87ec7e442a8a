"""The replicated log: a Raft group seen from above, its adapter, its journal and its view store."""
