"""Rules of the discovery service, without I/O."""
