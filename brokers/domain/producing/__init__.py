"""The rules of producers: their access modes, and which messages are duplicates.
Pure. ``service.producing`` calls it, as do the port and the adapter of producers.
"""
