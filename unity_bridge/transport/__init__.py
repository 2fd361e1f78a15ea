"""The gRPC edge: ports, calls, and the limits for clients."""
