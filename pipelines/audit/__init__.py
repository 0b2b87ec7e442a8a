"""The audit: does the exported log keep every promise that a log makes?"""
