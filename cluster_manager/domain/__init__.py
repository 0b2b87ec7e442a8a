"""The cluster manager's rules. Pure: time and ids come in with the command."""
