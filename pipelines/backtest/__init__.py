"""The job ``backtest``: what split and merged scalable topics by itself, decided again over the
recorded loads; and what another policy would have done. The decision is the shards' own.
"""
