"""The versions and status numbers of the protocol, which both ends of a conversation share, and its bounds."""

API_VERSION = "1.5.0"
"""Version of the protocol. Simulators of the same major version are understood."""

PACKAGE_VERSION = "1.1.0"
"""Version of the ML-Agents trainer that we stand in for."""

OUR_LIBRARY = "unity_bridge.simulators"
"""The name by which simulators in Python introduce themselves; Unity's is ``AcademySingleton``."""

OK = 200
"""Header status of a conversation in progress."""

STOP = 400
"""Header status of the last message of either side."""

LARGEST_HANDSHAKE = 4 * 2**20
"""Bytes of each of the two messages before the first reset: the values that ML-Agents' trainer accepts at any time."""
