"""Reports for people: one HTML file each, with everything in it."""
