"""Puts a discovery process together: the only place that joins ports and adapters."""
