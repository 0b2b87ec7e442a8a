"""Commands 70 to 82: clients watch the layouts of scalable topics.

One session for each connection, mounted alike in discovery and in brokers.
"""
