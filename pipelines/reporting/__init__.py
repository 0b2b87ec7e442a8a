"""Reports for people: one HTML file each, with everything in it; values as people read them.
``report`` of each job calls ``page``; ``running.summary`` shares the texts of values.
"""
