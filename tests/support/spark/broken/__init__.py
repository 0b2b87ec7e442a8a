"""Histories and exports in which one promise is broken each: by what it is about."""
