"""Change streams: who watches what, from which position, and when a write is effective.

The replica publishes every commit here; sessions and discovery subscribe.
"""
