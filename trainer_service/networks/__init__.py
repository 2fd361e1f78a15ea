"""Torch modules that map observations to action parameters and values.

The names in ``ActorCritic.state_dict``, i counting sensors in wire order, and in braces what repeats::

    {actor,critic}.encoder.sensors.i.convolutions.{0,1,2}      pictures; with fully_connected none
    {actor,critic}.encoder.sensors.i.blocks.{0…5}.{first,second}   resnet: two blocks after each convolution
    {actor,critic}.encoder.sensors.i.dense
    {actor,critic}.encoder.attention.own                       of what stands beside the entities, if anything
    {actor,critic}.encoder.attention.embeddings.k              k counts the sensors of entities alone
    {actor,critic}.encoder.attention.{query,key,value,output}
    {actor,critic}.body.layers.{0,1,…}                         a body without goals, or
    {actor,critic}.body.ordinary.layers.{0,1,…}                all layers but the last, and of the last
    {actor,critic}.body.generated.hidden.layers.{0,1}          from the goal to hidden features,
    {actor,critic}.body.generated.weights                      from these to inputs × outputs weights,
    {actor,critic}.body.generated.bias                         and biases, which no goal changes
    {actor,critic}.memory.{lstm,gru}                           after the body, if there is a memory
    actions.{mean,logits}, actions.log_sigma, value            heads; branches and reward signals are rows

Each ends in ``.weight`` and ``.bias``, except ``generated.bias`` and ``log_sigma``; memories in
``.{weight,bias}_{ih,hh}_l0``. With a shared critic there is
no ``critic``. ``mlagents_names`` knows ML-Agents' key of each.
"""
