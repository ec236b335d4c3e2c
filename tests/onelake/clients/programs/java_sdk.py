"""Java's azure-storage-file-datalake, azure-storage-blob and azure-identity, called from Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from places import BLOB, DFS, FOLDER, ITEM, LANDING_ZONE, SECRETS, WORKSPACE, new_table
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

java_path, jars = sys.argv[1:]
jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
port = launch_gateway(jarpath=str(jar), classpath=f"{jars}/*", java_path=java_path, die_on_exit=True)
jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
azure = jvm.com.azure
data = azure.core.util.BinaryData.fromString


def names(found):
    each = found.iterator()
    return [each.next().getName() for _ in iter(each.hasNext, False)]


builder = azure.identity.ClientSecretCredentialBuilder().tenantId(SECRETS["tenant_id"])
credential = builder.clientId(SECRETS["client_id"]).clientSecret(SECRETS["client_secret"]).build()
table = new_table()
place = f"{LANDING_ZONE}/{table}"

# DFS: the path is sent with %2F
lake = azure.storage.file.datalake.DataLakeServiceClientBuilder().endpoint(DFS).credential(credential).buildClient()
workspace = lake.getFileSystemClient(WORKSPACE)
workspace.getDirectoryClient(f"{ITEM}/Files").createIfNotExists()
folder = workspace.createDirectory(place)
file = folder.createFile("_a b=ü.csv")
file.append(data("id\n1\n"), 0)
file.append(data("2\n"), 5)
assert file.getProperties().getFileSize() == 0
file.flush(7, True)
renamed = file.rename(WORKSPACE, f"{place}/a b=ü.csv")
assert [path.name for path in (FOLDER / table).iterdir()] == ["a b=ü.csv"]
assert renamed.openInputStream().getInputStream().readAllBytes() == b"id\n1\n2\n"
workspace.getFileClient(f"{place}/b.csv").upload(data("id\n3\n"), True)
options = azure.storage.file.datalake.models.ListPathsOptions().setPath(place)
assert names(workspace.listPaths(options, None)) == [f"{place}/a b=ü.csv", f"{place}/b.csv"]
renamed.delete()
assert [file.exists(), renamed.exists(), folder.exists()] == [False, False, True]

# Blob
blobs = azure.storage.blob.BlobServiceClientBuilder().endpoint(BLOB).credential(credential).buildClient()
container = blobs.getBlobContainerClient(WORKSPACE)
blob = container.getBlobClient(f"{place}/c.csv")
blob.upload(data("id\n4\n"))
copy = container.getBlobClient(f"{place}/d.csv")
copy.copyFromUrl(blob.getBlobUrl())
assert copy.downloadContent().toBytes() == b"id\n4\n"
assert (FOLDER / table / "d.csv").read_bytes() == b"id\n4\n"
listed = azure.storage.blob.models.ListBlobsOptions().setPrefix(f"{place}/")
assert names(container.listBlobs(listed, None)) == [f"{place}/{letter}.csv" for letter in "bcd"]
blob.delete()
assert not blob.exists()
folder.deleteWithResponse(True, None, None, None)
assert not (FOLDER / table).exists()
