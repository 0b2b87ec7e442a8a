"""What the replicas of a group write and send: entries, configurations, messages, majorities.

Pure. Every room above the mesh's frames may call it.
"""
