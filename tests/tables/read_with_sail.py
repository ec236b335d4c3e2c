"""Reads Delta tables with Sail: for each folder on a line of its input, writes the rows as an Arrow stream."""

from __future__ import annotations

import sys

import pyarrow as pa
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

server = SparkConnectServer()
server.start()
_, port = server.listening_address
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
for line in sys.stdin:
    rows = spark.read.format("delta").load(line.rstrip("\n")).toArrow()
    with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as stream:
        stream.write_table(rows)
    sys.stdout.flush()
spark.stop()
server.stop()
