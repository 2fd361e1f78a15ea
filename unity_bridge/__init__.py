"""Everything that touches the wire: messages, conversations, the gRPC edge and the simulators' processes.

NumPy only; importing this package never imports torch.
"""
