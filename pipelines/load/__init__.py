"""Load history: series, percentiles, growth, skew, hot topics and when capacity runs out."""
