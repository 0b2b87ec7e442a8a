"""What a topic keeps for its shadows: who feeds them, and what they have acknowledged.
``topics`` calls it.
"""
