"""Where is a topic served? From the cache at once, else asked of its shard, tenant by tenant.
No answer is older than the streams allow. The servers of all protocols call it.
"""
