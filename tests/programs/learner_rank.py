"""A learner rank that writes the states of its learners into the file FIRST-ARGUMENT when rank 0 says it is over."""

import json
import sys

import torch

from trainer_service.distributed.learners.group import LearnerGroup, Meeting, join_meeting
from trainer_service.distributed.learners.replicated_learner import serve

invitation = json.loads(sys.stdin.readline())
rank = invitation.pop("rank")
torch.set_num_threads(1)
meeting = Meeting(**invitation)
learners = serve(LearnerGroup(meeting, join_meeting(meeting), rank), torch.device("cpu"))
torch.save([learner.state_dict() for learner in learners], sys.argv[1])
