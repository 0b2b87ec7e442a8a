"""Commands about scalable topics on a shard's leader: load, decide, propose.

The room above calls it; creation and deletion of the topics themselves are there.
"""
