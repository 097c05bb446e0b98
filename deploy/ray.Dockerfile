# The image of deploy/kuberay.yaml: docker build -f deploy/ray.Dockerfile -t IMAGE .
#
# PathE with the extra `ray`, and what KubeRay needs besides: Ray's dashboard and Jobs API (ray[default]), and wget for
# its probes.
FROM python:3.11-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url "$TORCH_INDEX" ".[ray]" "ray[default]" \
    && rm -r /src/src \
    && useradd --create-home --uid 10001 pathe
USER 10001
WORKDIR /home/pathe
