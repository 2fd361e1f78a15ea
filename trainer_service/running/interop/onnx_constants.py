"""The constants of an exported graph, in the form that every importer of Unity's packages reads alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def restore_merged_constants(graph: onnx.GraphProto) -> None:
    """Gives each parameter an initializer of its own again, where torch's exporter merged equal ones.

    Of several bit-equal parameters (the two biases of an LSTM, biases that are still zero) the exporter keeps one, and
    writes an ``Identity`` from it to each of the others. Engines run such a graph correctly. The importer of
    Barracuda 2 and 3 does not: to it the output of an ``Identity`` is no constant, and a ``Gemm`` whose bias is no
    constant loses it without a warning.

    Only the ``Identity`` of a graph's output stays, for an initializer cannot have that name too.

    graph: with its nodes in the order of execution; changed in place.
    """
    values = {each.name: each for each in graph.initializer}
    outputs = {each.name for each in graph.output}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in values:
            (name,) = node.output
            own = type(values[node.input[0]])()
            own.CopyFrom(values[node.input[0]])
            own.name = f"{name}.value" if name in outputs else name
            values[own.name] = values[name] = own
            if name not in outputs:
                continue
            node.input[0] = own.name
        nodes.append(node)
    read = {name for node in nodes for name in node.input}
    constants = [each for name, each in values.items() if name == each.name and name in read]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
