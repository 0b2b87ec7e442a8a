"""What joins a broker to the world: clients, its broker manager, the disk, metrics.
Each adapter fulfils a port or calls the service. ``bootstrap`` alone puts them together.
"""
