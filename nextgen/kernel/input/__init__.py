"""Handles input of peers, users and files: counts, cuts, parses and queues it fairly.

Each module bounds what one sender can cost the process and the other senders.
Every package may import it; it imports nothing else of this project.
"""
