"""The gRPC edge: ports, calls, and what they take from anybody."""
