# umpteen serve on a CPU:
#   docker build -t umpteen --build-arg TORCH_INDEX=ADDRESS .
#   docker run -p 8000:8000 -v $PWD/run:/run/model:ro umpteen
# ADDRESS: an index with CPU builds of torch. Only files whose hashes are in the lock are installed.
FROM python:3.11-slim AS build
ARG TORCH_INDEX
WORKDIR /build
COPY pyproject.toml requirements-serve.lock README.md LICENSE ./
COPY src src
RUN python -m venv /opt/umpteen \
 && /opt/umpteen/bin/pip install --no-cache-dir --require-hashes -r requirements-serve.lock \
    --extra-index-url "${TORCH_INDEX:?give --build-arg TORCH_INDEX=ADDRESS, an index with CPU builds of torch}" \
 && /opt/umpteen/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home umpteen
COPY --from=build /opt/umpteen /opt/umpteen
ENV PATH=/opt/umpteen/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER umpteen
EXPOSE 8000
# Only this line talks to the service: without a host name of its own it is "localhost".
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["umpteen", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["/run/model"]
