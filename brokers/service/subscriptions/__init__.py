"""A subscription: its cursor, its consumers, its turns; ``dispatch`` chooses an entry's consumer.
It never redelivers messages that its stored cursor has. Topics and Pulsar connections call it.
"""
