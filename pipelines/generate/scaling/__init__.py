"""Scalable topics of a generated history that grow and shrink by themselves: their traffic,
consumers and policies are drawn, and the shards' own decision makes of them what it would.
"""
