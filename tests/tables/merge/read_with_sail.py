"""Reads a Delta table with Sail, and writes its rows as an Arrow stream: `read_with_sail.py FOLDER`."""

from __future__ import annotations

import sys

import pyarrow as pa
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

server = SparkConnectServer()
server.start()
_, port = server.listening_address
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
rows = spark.read.format("delta").load(sys.argv[1]).toArrow()
with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as stream:
    stream.write_table(rows)
spark.stop()
server.stop()
