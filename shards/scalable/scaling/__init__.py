"""Scalable topics that grow and shrink by themselves: the loads of their segments are recorded, and
topics evaluated by them. Called by the controller of a shard's scalable topics and its leader."""
