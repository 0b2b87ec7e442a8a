"""Rules of the scalable-topics client: layouts, routing, sessions, order, positions.

No socket, no clock, no protobuf. Only ``nextgen.client.st`` uses it.
"""
