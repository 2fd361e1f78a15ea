#!/bin/sh
# Starts Ray on one machine of a cluster, with a token and on fixed ports, which are all that a firewall must let through
# between the machines of the cluster. Nothing else needs to reach them: Ray runs whatever code it is sent.
#
#     ray get-auth-token --generate      once, anywhere
#     chmod 600 ~/.ray/auth_token        and copy it to every machine
#     sh start_node.sh                   on the head
#     sh start_node.sh HEAD:6379         on every other machine
#     mlagents-style doctor --ray auto   on one of them: is everything there?
#     ray stop                           on each, at the end
#
# The token is sent in the clear. In a network that others listen to, use Ray's TLS as well (RAY_USE_TLS).
set -eu
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

if [ $# -eq 0 ]; then
    # 6379: the control service, the port of --ray-address. 10001: for ray://HOST:10001, from outside the cluster.
    set -- --head --port=6379 --ray-client-server-port=10001 --include-dashboard=false
else
    set -- --address="$1"
fi
# 10002 to 10257: one port for each process that Ray starts, so two for each core are plenty.
exec ray start "$@" \
    --node-manager-port=6380 \
    --object-manager-port=6381 \
    --runtime-env-agent-port=6382 \
    --dashboard-agent-listen-port=6383 \
    --metrics-export-port=6384 \
    --min-worker-port=10002 --max-worker-port=10257
