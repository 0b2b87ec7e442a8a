"""What joins a node to the world: its servers, the shards' changes, its workers, its metrics.
Each adapter fulfils a port or calls the service. ``bootstrap`` puts them together.
"""
