"""How shadows are fed: a source's end of the streams between brokers, and their shadows' end.
Adapters call it; it opens the sources of ``topics``.
"""
