"""The stored fold of group 0's log."""
