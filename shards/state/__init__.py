"""The state of one shard as its leader decides on it: the view, and what is not folded yet.

All rooms of the leader read it and propose through it; nothing else proposes.
"""
