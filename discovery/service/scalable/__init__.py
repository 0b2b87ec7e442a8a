"""Scalable topics: their layouts, subscriptions and statistics. Called by adapters."""
