"""Watches of programs: catch-up, bounded queues of updates, and the shard map. A watcher that is
too slow is ended. The servicer of gRPC and the metrics call it.
"""
