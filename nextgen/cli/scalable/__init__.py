"""``nextgen scalable-topics``: scalable topics, their layouts as drawings, and statistics.

Called by ``nextgen.main``.
"""
