"""A broker: serves the topics that its broker manager assigns, and keeps a session with it.
``python -m brokers`` starts one. No other component imports it; they call it by RPC.
"""
