"""`shards`: replicas listed, added, removed, verified and recovered.
A change returns once the shard has made it, unless the caller asks not to wait.
nextgen.main, `nodes` and the harness call it.
"""
