# A server for the graph in /data: docker run -p 127.0.0.1:8080:8080 -v "$PWD:/data" pathe --data graph.csv --public
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY constraints.txt deploy/requirements.lock /tmp/
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --require-hashes --no-deps --requirement /tmp/requirements.lock \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt --extra-index-url "$TORCH_INDEX" torch \
    && pip install --no-cache-dir --no-deps /wheels/pathe-*.whl \
    && pip check \
    && rm -r /wheels /tmp/constraints.txt /tmp/requirements.lock \
    && useradd --create-home --uid 10001 pathe
USER 10001
WORKDIR /data
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/api/v1/health')"]
ENTRYPOINT ["pathe", "serve", "--host", "0.0.0.0"]
CMD ["--help"]
