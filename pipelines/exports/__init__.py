"""An export as jobs read it: the schema of events in every version, and the files of a manifest.
A file that the manifest does not name does not exist. All jobs may call it.
"""
