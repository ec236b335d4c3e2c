# The OneLake emulator and all other commands. Two images:
#
#   docker build --tag mirror-engine:latest .                  without Java; changes are merged by the engine arrow
#   docker build --tag mirror-engine:spark --target spark .    with Java, PySpark and Delta's jars
#
# Neither needs a network once it is built. STORE is the volume /store; all else may be read-only.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python3 -m venv /opt/mirror-engine
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE CHANGELOG.md SECURITY.md ./
COPY mirror_engine mirror_engine
RUN /opt/mirror-engine/bin/pip install '.[emulator,stores]'

FROM build AS build-spark
RUN /opt/mirror-engine/bin/pip install '.[emulator,stores,spark]'

FROM ${BASE} AS runtime
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --home-dir /store --no-create-home --shell /usr/sbin/nologin mirror-engine \
    && install --directory --owner 10001 --group 10001 --mode 0700 /store
ENV PATH=/opt/mirror-engine/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/store \
    MIRROR_ENGINE_CACHE=/store/.mirror-engine/cache \
    MIRROR_ENGINE_STATE=/store/.mirror-engine/state \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /store
VOLUME /store
EXPOSE 8700
USER 10001:10001
# The emulator writes where it listens, and the token it asks for, into its own folder
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=3 CMD ["python3", "-c", "import json, urllib.request as web\ninfo = json.load(open('/store/.mirror-engine/emulator.json'))\ntoken = {'Authorization': 'Bearer ' + info['environment']['AZURE_CLIENT_SECRET']}\nweb.build_opener(web.ProxyHandler({})).open(web.Request(info['page'] + 'readyz', headers=token), timeout=3)"]
ENTRYPOINT ["mirror-engine"]
# Others reach it through the published port only, and with a token only: set MIRROR_ENGINE_TOKEN. Quiet, for the
# environment that it prints holds that token; of the level `debug` that leaves `info`
CMD ["emulator", "start", "/store", "--host", "0.0.0.0", "--allow-remote", "--single-port", "--port", "8700", "--quiet", "--log-level", "debug"]
LABEL org.opencontainers.image.title="mirror-engine" \
      org.opencontainers.image.description="Run and test Microsoft Fabric Open Mirroring without Fabric. Not affiliated with Microsoft." \
      org.opencontainers.image.licenses="Apache-2.0"

FROM runtime AS spark
USER 0
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /opt/mirror-engine /opt/mirror-engine
# Spark downloads Delta's jars while it replicates an example; only the jars are kept
RUN export MIRROR_ENGINE_CACHE=/tmp/cache \
    && mirror-engine init /tmp/demo \
    && mirror-engine sync /tmp/demo --progress none \
    && install --directory /opt/delta-jars \
    && install --mode 0644 /tmp/cache/ivy/jars/*.jar /opt/delta-jars/ \
    && rm -rf /tmp/cache /tmp/demo
# Spark looks up its host's name, which no network may know; on a cluster, set both to an address that executors reach
ENV MIRROR_ENGINE_DELTA_JARS_DIR=/opt/delta-jars SPARK_LOCAL_HOSTNAME=localhost SPARK_LOCAL_IP=127.0.0.1
USER 10001:10001

FROM runtime AS default
COPY --from=build /opt/mirror-engine /opt/mirror-engine
