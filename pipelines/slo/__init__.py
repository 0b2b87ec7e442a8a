"""Windows of lookups by minute and month: availability, error budget, worst minutes."""
