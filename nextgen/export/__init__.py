"""The event log as Parquet files: schema, writer, reader, checks."""
