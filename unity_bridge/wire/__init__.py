"""Messages of the protocol, generated from ``protos/`` by ``tools/regenerate_wire.py``. Never edited by hand."""
