"""Lists of a namespace's topics that many watchers share: one compact set of names per pattern,
kept up to date by one subscription per shard. Discovery and brokers mount ``SharedTopicLists``.
"""
