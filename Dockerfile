# syntax=docker/dockerfile:1
# The base is one exact image. For a newer Python, this prints what to put in its place, here or as --build-arg BASE=…
#   docker buildx imagetools inspect python:3.13-slim-trixie --format '{{.Manifest.Digest}}'
# docker build -t sawtooth . && docker run -p 8501:8501 -v sawtooth:/data sawtooth
# The log prints a link that logs one browser in. One replica per data volume: sessions live in the process.
ARG BASE=python:3.13.9-slim-trixie@sha256:326df678c20c78d465db501563f3492d17c42a4afe33a1f2bf5406a1d56b0e86
FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/sawtooth
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock ./
# what it needs, as it was locked: .ci/lock writes the file anew
RUN /opt/sawtooth/bin/pip install --require-hashes --only-binary :all: -r requirements.lock
COPY sawtooth sawtooth
COPY ingest ingest
COPY analysis analysis
COPY app app
COPY sample_traces sample_traces
RUN /opt/sawtooth/bin/pip install --no-deps .

FROM ${BASE}
# for a published image: --build-arg VERSION=… --build-arg REVISION="$(git rev-parse HEAD)" --build-arg SOURCE=https://…
ARG VERSION=0.1.0 REVISION= SOURCE=
LABEL org.opencontainers.image.title="Sawtooth" org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}" \
  org.opencontainers.image.source="${SOURCE}" org.opencontainers.image.documentation="${SOURCE}" \
  org.opencontainers.image.description="Why a training run leaves its GPU waiting, what to change, and what the change would bring"
RUN useradd --create-home --uid 10001 sawtooth && install -d -o sawtooth -g sawtooth -m 700 /data
COPY --from=build /opt/sawtooth /opt/sawtooth
ENV PATH=/opt/sawtooth/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 SAWTOOTH_DATA=/data
USER sawtooth
WORKDIR /home/sawtooth
VOLUME /data
EXPOSE 8501
# it writes /data and /tmp only: docker run --read-only --tmpfs /tmp …
# the server keeps its address in /data, so that the check finds another port and TLS too
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-m", "sawtooth.app.served_address"]
ENTRYPOINT ["sawtooth"]
CMD ["serve", "--address", "0.0.0.0", "--port", "8501"]
