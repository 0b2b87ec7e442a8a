"""What a broker does: its session, its topics, its clients."""
