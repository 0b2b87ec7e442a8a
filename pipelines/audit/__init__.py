"""The audit: does the exported log keep every promise that a log makes?
``job`` runs it, ``transform`` joins the rules. ``pipelines.__main__`` imports ``command``.
"""
