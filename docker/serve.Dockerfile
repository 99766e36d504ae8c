# Image of `t2t serve`, for CPUs (x86-64):
#
#     docker build --file=docker/serve.Dockerfile --tag=t2t-serve .
FROM python:3.12-slim AS build
WORKDIR /source
COPY LICENSE README.md pyproject.toml setup.py ./
COPY docs docs
COPY hparams hparams
COPY problems problems
COPY t2t_repro t2t_repro
ENV PATH=/opt/t2t/bin:$PATH
# tensorflow-cpu is the same version without CUDA: half a gigabyte less. TF Text
# requires the package tensorflow, so it is replaced afterwards. A server needs
# neither TensorFlow's C++ headers nor libclang.
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# hadolint ignore=DL3013  # pyproject.toml has the limits of versions
RUN python -m venv /opt/t2t \
    && pip install --no-cache-dir '.[serve]' \
    && version=$(pip list --format=freeze | sed -n 's/^tensorflow==//p') \
    && pip uninstall --yes tensorflow libclang \
    && pip install --no-cache-dir --no-deps "tensorflow-cpu==$version" \
    && rm -r /opt/t2t/lib/python3.12/site-packages/tensorflow/include

FROM python:3.12-slim
COPY --from=build /opt/t2t /opt/t2t
ENV PATH=/opt/t2t/bin:$PATH
RUN useradd --create-home --uid=1000 t2t
USER 1000
EXPOSE 8500 8501
# The health port has neither TLS nor tokens, whatever flags follow.
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8502/healthz')"]
ENTRYPOINT ["t2t", "serve", "--host=0.0.0.0", "--health_port=8502", "--export_dir=/export"]
