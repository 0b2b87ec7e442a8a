"""The kernel's rules as Spark columns: parts of names, hashes, slots, the verdict on lookups.
They give the kernel's answers, and tests compare them. All jobs may call it.
"""
