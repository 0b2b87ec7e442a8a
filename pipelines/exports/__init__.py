"""An export as jobs read it: the schema of events in every version, and the files of a manifest.
Files that the manifest does not name are ignored. All jobs may call it.
"""
