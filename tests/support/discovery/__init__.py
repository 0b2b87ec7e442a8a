"""Stand-ins for what discovery and clients call, and the Admin REST without a cluster."""
