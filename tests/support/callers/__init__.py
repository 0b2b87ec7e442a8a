"""What calls a running cluster in tests: loads, stock and foreign clients, raw calls, questions."""
