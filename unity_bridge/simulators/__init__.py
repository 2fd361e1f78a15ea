"""The bundled simulator: a gRPC client that hosts scenes and Gymnasium environments in a process of its own.

On the wire it is a Unity build. ``python -m unity_bridge.simulators sim:3dball --mlagents-port 5004``
"""

LAUNCHED = "TRAINER_SERVICE_LAUNCHED"
"""An environment variable that a trainer sets for each program which it starts, so that a simulator knows that it must
not outlive its trainer."""
