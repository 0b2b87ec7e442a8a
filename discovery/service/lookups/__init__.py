"""Lookups: from the caches, else from the topic's shard, with a turn for each tenant.

No answer is older than the streams of the caches allow. The servers of all protocols call it.
"""
