"""A Java runtime's own https: the proxy and the trust store come from JAVA_TOOL_OPTIONS alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from places import DFS, ITEM, WORKSPACE
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
port = launch_gateway(jarpath=str(jar), java_path=sys.argv[1], die_on_exit=True)
jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm


def read(url: str) -> str:
    return jvm.java.util.Scanner(jvm.java.net.URL(url).openStream()).useDelimiter("\\A").next()


assert ITEM in read(f"https://api.fabric.microsoft.com/v1/workspaces/{WORKSPACE}/mirroredDatabases")
assert "LandingZone" in read(f"{DFS}/{WORKSPACE}?resource=filesystem&recursive=false&directory={ITEM}/Files")
