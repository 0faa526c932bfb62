"""Random declared clusters, faults and edits under all real controllers, judged by models of etcd and hosts: nothing
that is done costs the quorum, members change one at a time, a cluster begins once, no plan flaps, all work ends when
faults do, and a cluster that is as it shall be writes nothing.

A longer campaign is in tests/faults/simulator.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.unit.lab.simulator.random_scenarios import DEEDS, SHAPES, Deed, live

EXAMPLES = int(os.environ.get("REMUDA_EXAMPLES", "6"))  # more of them, and others, when asked for

deeds = st.lists(
    st.tuples(st.sampled_from((0, 1, 20, 90, 300)), st.sampled_from(DEEDS), st.integers(0, 59)), max_size=8
)


@settings(
    max_examples=EXAMPLES,
    derandomize=not os.environ.get("REMUDA_EXAMPLES"),
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 2**32),
    shape=st.integers(0, len(SHAPES) - 1),
    scenario=deeds,
    catch_up=st.sampled_from((0.0, 10.0, 40.0)),
)
def test_random_faults_and_edits_keep_quorum_and_converge_to_idle_cluster(
    repeatable: None, seed: int, shape: int, scenario: list[Deed], catch_up: float
) -> None:
    live(seed, shape, scenario, catch_up)
