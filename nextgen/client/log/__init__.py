"""The committed log of a shard on the wire: reading by position, named readers, event bytes.

A reader misses nothing silently: it learns which positions are gone.
The exporter and the command line read with it; shards and the cluster manager answer with it.
"""
