"""What benchmarks/cluster/hundred_million.py consists of: names, load files, callers, phases."""
