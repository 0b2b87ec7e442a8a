"""Watches of programs: what shards tell, caught up, queued and bounded, and the shard map.
A watcher that is too slow is ended. The servicer of gRPC and the metrics call it.
"""
