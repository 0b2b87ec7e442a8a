"""The broker agent: keeps a session with its broker manager and what it is assigned."""
