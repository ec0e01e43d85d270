# The same set-up as on any machine: `make install`. ENGINE is cpu or gpu.
# Written without a Docker engine at hand: this image has not been built; the compose file has been validated, not run.
FROM python:3.12-slim-trixie

# A compiler for kernels made at run time, libnuma for the CPU engine.
# For QuickAssist cards add `--build-arg EXTRA_PACKAGES=libqatzip3` (Debian 13 has QATzip 1.3.1).
ARG EXTRA_PACKAGES=""
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential libnuma1 ${EXTRA_PACKAGES} \
 && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 kvfuse && mkdir -p /opt/kvfuse /data && chown kvfuse:kvfuse /opt/kvfuse /data
USER kvfuse
WORKDIR /opt/kvfuse

# The environment first: it changes with pyproject.toml only, the code every day.
ARG ENGINE=cpu
ARG TORCH_INDEX=""
COPY --chown=kvfuse:kvfuse Makefile pyproject.toml README.md LICENSE ./
RUN for package in app cascade fuse store; do mkdir $package && touch $package/__init__.py; done \
 && PIP_NO_CACHE_DIR=1 make install ENGINE=${ENGINE} EXTRAS= ${TORCH_INDEX:+TORCH_INDEX=${TORCH_INDEX}}
COPY --chown=kvfuse:kvfuse . .

ENV KVFUSE_HOME=/data HF_HUB_OFFLINE=1
VOLUME /data
EXPOSE 8000
# Preparing the models and loading the engine come before readiness; a first start takes minutes.
HEALTHCHECK --interval=10s --timeout=6s --start-period=10m --retries=3 \
  CMD [".venv/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/ready', timeout=5)"]
ENTRYPOINT [".venv/bin/kvfuse"]
CMD ["serve", "--host", "0.0.0.0"]
