"""What the Spark jobs and the export that they read cost."""
