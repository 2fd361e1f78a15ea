import numpy as np

from trainer_service.learning.rollout.agents import AgentRows, agent_keys


def keys(*ids: int, team: int = 0) -> np.ndarray:
    return agent_keys(np.array(ids, np.int64), team)


def test_an_id_of_another_simulator_or_team_is_another_agent() -> None:
    agents = AgentRows()
    rows = [
        int(agents.assign(0, keys(1))[0]),
        int(agents.assign(1, keys(1))[0]),
        int(agents.assign(0, keys(1, team=1))[0]),
    ]
    assert len(set(rows)) == 3


def test_unknown_agents_have_no_row() -> None:
    agents = AgentRows()
    assert agents.find(0, keys(1)).tolist() == [-1]
    agents.assign(0, keys(1, 4))
    assert agents.find(0, keys(2, 4, 7)).tolist() == [-1, 1, -1]


def test_rows_that_were_found_are_the_callers_to_change() -> None:
    agents = AgentRows()
    agents.assign(0, keys(1, 4))
    agents.find(0, keys(1, 4))[:] = 7
    assert agents.find(0, keys(1, 4)).tolist() == [0, 1]


def test_released_rows_are_reused_and_the_agent_is_forgotten() -> None:
    agents = AgentRows()
    agents.assign(0, keys(1, 2))
    agents.release(0, keys(1, 77))
    assert agents.find(0, keys(1, 2)).tolist() == [-1, 1]
    assert agents.assign(0, keys(8)).tolist() == [0]
    assert agents.capacity == 2


def test_dropping_a_simulator_frees_all_its_rows_and_no_others() -> None:
    agents = AgentRows()
    agents.assign(0, keys(1, 2))
    kept = agents.assign(1, keys(1))
    assert sorted(agents.drop(0).tolist()) == [0, 1]
    assert agents.find(1, keys(1)).tolist() == kept.tolist()
    assert agents.drop(0).tolist() == []
