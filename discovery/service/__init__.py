"""What the discovery service does for its callers: lookups, inventories, moves."""
