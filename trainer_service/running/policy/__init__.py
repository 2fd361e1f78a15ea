"""A trained policy to act with: on arrays, and on the spaces of an environment of Gymnasium or PettingZoo."""

from trainer_service.running.policy.policy import InvalidRow as InvalidRow
from trainer_service.running.policy.policy import Policy as Policy
from trainer_service.running.policy.policy import by_behavior as by_behavior
from trainer_service.running.policy.policy import checkpoints_of as checkpoints_of
from trainer_service.running.policy.policy import chosen_checkpoints as chosen_checkpoints
from trainer_service.running.policy.policy import load_policy as load_policy
from trainer_service.running.policy.policy import random_policy as random_policy
