from __future__ import annotations

from remuda.kube.errors import FieldError, invalid, invalid_object, required


def refusal(*complaints: FieldError) -> tuple[str, int]:
    error = invalid_object("apps", "Deployment", "web", complaints)
    return error.message, len(error.details["causes"])


def test_one_complaint_is_a_sentence() -> None:
    assert refusal(required("spec.selector")) == (
        'Deployment.apps "web" is invalid: spec.selector: Required value',
        1,
    )


def test_several_are_a_list_in_which_each_is_said_once() -> None:
    message, causes = refusal(required("spec.selector"), required("spec.selector"), invalid("spec.a", 1, "no"))
    assert message == 'Deployment.apps "web" is invalid: [spec.selector: Required value, spec.a: Invalid value: 1: no]'
    assert causes == 3


def test_ten_thousand_are_counted_not_listed() -> None:
    message, causes = refusal(*(required(f"spec.items[{n}]") for n in range(10_000)))
    assert causes == 128
    assert message.endswith("spec.items[127]: Required value, and 9872 more]")


def test_large_values_end_the_list_sooner() -> None:
    large = ["x" * 1000] * 3000
    message, causes = refusal(*(invalid(f"spec.items[{n}]", large, "too much") for n in range(100)))
    assert causes < 20
    assert len(message) < 1024 * 1024
    assert message.endswith(f"and {100 - causes} more]")
