"""What joins a replica to the world: gRPC servers, the stored view, shards asked for grants.
Each adapter fulfils a port or calls the service. ``bootstrap`` puts them together.
"""
