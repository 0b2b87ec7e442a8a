"""Reports for people: one self-contained HTML file each, and the text form of values.
``report`` of each job calls ``page``; ``running.summary`` uses the text form too.
"""
