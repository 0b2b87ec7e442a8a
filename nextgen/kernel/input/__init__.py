"""Handles what a peer, a user or a file sent: counts, cuts, parses, queues it fairly.

Each module bounds what one sender can cost the process and the other senders.
Every package may import it; it imports nothing else of this project.
"""
