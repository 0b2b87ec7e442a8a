"""The engine of one replica: messages in, messages out, entries made durable, committed, applied.

The host drives it; it knows nothing of what entries mean.
"""
