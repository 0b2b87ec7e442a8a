"""Programs that write the golden files of a stored format: run once per version, not to repair."""
