"""What topics cost to create, import, list and change."""
