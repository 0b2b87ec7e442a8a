"""``nextgen perf``: measures a cluster from outside, and checks what it measured."""
