"""Names, ids, the stable hash and the table of slots: how a name finds its shard.

The same name has the same slot in every process and every release.
Every package may import it; the pipelines repeat its rules as Spark columns.
"""
