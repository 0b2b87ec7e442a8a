"""One shard node: its replicas, what exists only on a leader, and the requests that reach them.

The adapters call it; it starts and stops all other rooms.
"""
