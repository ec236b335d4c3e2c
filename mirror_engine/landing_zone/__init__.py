"""The protocol: values and functions, without clock, I/O or Spark."""
