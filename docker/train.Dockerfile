# Image of all commands but serve, with CUDA and cuDNN as packages. The machine needs an
# NVIDIA driver and the NVIDIA Container Toolkit:
#
#     docker build --file=docker/train.Dockerfile --tag=t2t-train .
FROM python:3.12-slim
WORKDIR /source
COPY LICENSE README.md pyproject.toml setup.py ./
COPY docs docs
COPY hparams hparams
COPY problems problems
COPY t2t_repro t2t_repro
# hadolint ignore=DL3013  # pyproject.toml has the limits of versions
RUN pip install --no-cache-dir '.[gpu,demo,report]' \
    && useradd --create-home --uid=1000 t2t \
    && install --directory --owner=t2t /work
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
WORKDIR /work
ENTRYPOINT ["t2t"]
CMD ["--help"]
