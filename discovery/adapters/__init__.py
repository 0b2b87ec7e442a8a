"""gRPC servicers, the watch of assignments, and metrics of the discovery service."""
