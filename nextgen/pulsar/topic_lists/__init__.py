"""Topic lists by pattern (PIP-145): hash, patterns, the port behind them, sessions of watchers.

Discovery and brokers mount the sessions; what implements the port is above this package.
"""
