"""The aggregate of a scalable topic: its layout of segments, its subscriptions, its consumers.

Pure. ``decider`` decides, ``state`` evolves; what the topic shares with classic ones is ``Topic``.
"""
