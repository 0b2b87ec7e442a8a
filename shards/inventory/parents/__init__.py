"""Parents and children in different shards: gates are opened, and closed before a parent goes."""
