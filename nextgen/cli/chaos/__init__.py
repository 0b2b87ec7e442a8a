"""``nextgen chaos``: load on a cluster, faults on purpose, and a verdict by its history."""
