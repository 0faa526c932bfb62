"""What the definitions say besides their schemas."""

from __future__ import annotations

import pytest

from remuda.capi import names as capi_names
from remuda.providers.bootstrap.definitions import definitions


@pytest.mark.parametrize("definition", definitions(), ids=lambda definition: definition["spec"]["names"]["kind"])
def test_definitions_have_contract_and_clusterctl_labels(definition: dict) -> None:  # type: ignore[type-arg]
    labels = definition["metadata"]["labels"]
    for contract in ("v1beta1", "v1beta2"):
        assert labels[capi_names.contract_label(contract)] == "v1"
    assert capi_names.CLUSTERCTL in labels
    assert definition["spec"]["names"]["categories"] == ["cluster-api"]
