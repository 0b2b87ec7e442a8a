"""Puts a broker process together, embedded or sidecar. It alone joins ports and adapters;
``__main__`` calls it.
"""
