"""Histories and exports that each break one promise; one module for each subject."""
