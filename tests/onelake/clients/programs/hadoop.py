"""Hadoop's ABFS driver as Spark uses it."""

from __future__ import annotations

import sys
from pathlib import Path

from places import ABFSS, FOLDER, LANDING_ZONE, SECRETS, new_table
from pyspark.sql import SparkSession

jars = [
    str(path) for path in Path(sys.argv[1]).glob("org.*.jar") if "hadoop-azure" in path.name or "wildfly" in path.name
]
oauth = "fs.azure.account.oauth"
settings = {
    "spark.driver.extraClassPath": ":".join(jars),
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.hadoop.fs.azure.ssl.channel.mode": "Default_JSSE",  # OpenSSL does not read Java's trust store
    "spark.hadoop.fs.azure.account.auth.type": "OAuth",
    f"spark.hadoop.{oauth}.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
    f"spark.hadoop.{oauth}2.client.endpoint": f"https://login.microsoftonline.com/{SECRETS['tenant_id']}/oauth2/token",
    f"spark.hadoop.{oauth}2.client.id": SECRETS["client_id"],
    f"spark.hadoop.{oauth}2.client.secret": SECRETS["client_secret"],
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
table = new_table()
place = f"{ABFSS}/{LANDING_ZONE}/{table}"
spark.range(3).write.parquet(f"{place}/numbers")
spark.range(3, 5).write.mode("append").parquet(f"{place}/numbers")
assert sorted(row.id for row in spark.read.parquet(f"{place}/numbers").collect()) == list(range(5))
file = min(path.name for path in (FOLDER / table / "numbers").glob("*.parquet"))
assert spark.read.parquet(f"{place}/numbers/{file}").count() > 0

path = spark._jvm.org.apache.hadoop.fs.Path
files = path(place).getFileSystem(spark._jsc.hadoopConfiguration())
assert [status.getPath().getName() for status in files.listStatus(path(f"{place}/numbers/{file}"))] == [file]
assert files.rename(path(f"{place}/numbers/{file}"), path(f"{place}/one.parquet"))
assert sorted(status.getPath().getName() for status in files.listStatus(path(place))) == ["numbers", "one.parquet"]
assert files.exists(path(f"{place}/one.parquet"))
assert files.delete(path(place), True)
assert not (FOLDER / table).exists()
