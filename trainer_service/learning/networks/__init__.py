"""Torch modules that map observations to action parameters and values.

Parameter names of ``ActorCritic.state_dict``. i counts sensors in wire order, and braces list alternatives::

    {actor,critic}.encoder.sensors.i.convolutions.{0,1,2}      pictures; none with fully_connected
    {actor,critic}.encoder.sensors.i.blocks.{0…5}.{first,second}   resnet: two blocks after each convolution
    {actor,critic}.encoder.sensors.i.dense
    {actor,critic}.encoder.attention.own                       of the other features, if there are any
    {actor,critic}.encoder.attention.embeddings.k              k counts the sensors of entities only
    {actor,critic}.encoder.attention.{query,key,value,output}
    {actor,critic}.body.layers.{0,1,…}                         a body without goals, or
    {actor,critic}.body.ordinary.layers.{0,1,…}                all layers but the last, and of the last
    {actor,critic}.body.generated.hidden.layers.{0,1}          from the goal to hidden features,
    {actor,critic}.body.generated.weights                      from these to inputs × outputs weights,
    {actor,critic}.body.generated.bias                         and biases, which do not depend on the goal
    {actor,critic}.memory.{lstm,gru}                           after the body, with memory
    actions.{mean,logits}, actions.log_sigma, value            heads; branches and reward signals are rows

Each name ends in ``.weight`` and ``.bias``, except ``generated.bias`` and ``log_sigma``; memories end in
``.{weight,bias}_{ih,hh}_l0``. A shared critic has no ``critic`` names. ``mlagents_names`` maps the names to ML-Agents'.
"""
