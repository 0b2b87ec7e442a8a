"""A subscription: its cursor, its consumers, its turns; ``dispatch`` says who gets which entry.
It sends nothing again that its stored cursor has. Topics and Pulsar connections call it.
"""
