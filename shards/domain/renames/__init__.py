"""Names of renamed topics: pointers to their homes, former names, and what a new name must be."""
