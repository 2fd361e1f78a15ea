# The trainer, for one machine and, with Ray, for the head and the workers of a cluster. From the root of a checkout:
#
#     docker build -t trainer:cuda .                                     torch's usual build, for GPUs and CPUs
#     docker build -t trainer --build-arg TORCH_INDEX=URL .              another build: for CPUs alone, which is smaller by
#                                                                        gigabytes, or with the CUDA that your driver knows;
#                                                                        pytorch.org, Get started, has the URLs
#
#     docker run --rm --user "$(id -u)" -v "$PWD":/work trainer \
#         mlagents-style learn 3dball --env=sim:3dball --run-id=a
#     docker run --rm --shm-size=4g -v "$PWD":/work trainer mlagents-style learn … --num-workers 4
#     docker run --gpus all … trainer:cuda …                             the learner on a GPU
#     docker run --rm -p 127.0.0.1:5004:5004 … learn … --host 0.0.0.0 --insecure-listen
#                                                                        an Editor outside attaches
#     docker run --network=host --shm-size=4g -v ~/.ray/auth_token:/home/trainer/.ray/auth_token:ro trainer \
#         sh -c "sh /usr/local/share/trainer/start_node.sh && exec sleep infinity"     a node; see start_node.sh
#
# Ray passes arrays between processes in /dev/shm, of which Docker gives 64 MB unless told; with less it uses files.
FROM python:3.11-slim AS wheel
# The compiled kernel needs a compiler here, and none in the image.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY . /tmp/trainer-service
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel /tmp/trainer-service

FROM python:3.11-slim

ARG TORCH_INDEX
RUN pip install --no-cache-dir "torch>=2.10,<2.16" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}

RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir "$(ls /wheel/*.whl)[ray,prometheus,remote]"
COPY docs/cluster/start_node.sh /usr/local/share/trainer/

RUN useradd --create-home trainer && install -d -o trainer /work
USER trainer
WORKDIR /work
RUN mlagents-style doctor basic --ray local --env=sim:basic
CMD ["mlagents-style", "--help"]
