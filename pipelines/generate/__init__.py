"""Makes a realistic history of a cluster and writes it as an export, by Spark alone."""
