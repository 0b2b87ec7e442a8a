"""What several benchmarks share: clusters, nodes, loads and peers for comparison."""
