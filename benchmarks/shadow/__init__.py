"""What shadows cost: latency, the source's broker, very many subscriptions."""
