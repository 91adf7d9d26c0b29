"""The environment of DRA's selectors: ``device``, and Kubernetes' functions on CEL's own.

Source of the declarations: k8s.io/dynamic-resource-allocation/cel and k8s.io/apiserver/pkg/cel of
1.37. CEL has no type that a library user may add, so quantities and versions are protobuf messages
that hold a canonical text: equal texts are equal values, as ``==`` needs.

Not here: urls, ip, cidr, format, find, findAll, list functions beyond CEL's own and comprehensions
over two variables. A selector that uses one does not compile, and the condition says so.
"""

from __future__ import annotations

from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from stretto.cel.quantities import as_integer, is_integer, sign, signed_nano
from stretto.cel.versions import Version, normalised_version, version_of
from stretto.model.quantity import NANO_PER_UNIT

_T = cel.Type
_TEXT = descriptor_pb2.FieldDescriptorProto.TYPE_STRING


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="stretto_cel.proto", package="kubernetes", syntax="proto3"
    )
    for name in ("Quantity", "Semver"):
        file.message_type.add(name=name).field.add(name="canonical", number=1, type=_TEXT)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _pool()
_QuantityMessage: Any = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("kubernetes.Quantity")
)
_SemverMessage: Any = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("kubernetes.Semver")
)
_QUANTITY, _SEMVER = _T("kubernetes.Quantity"), _T("kubernetes.Semver")


def quantity_value(text: str) -> object:
    """A quantity as CEL holds it.

    Raises:
        ValueError: not a quantity.
    """
    return _of_nano(signed_nano(text))


def version_value(text: str) -> object:
    """A semantic version as CEL holds it.

    Raises:
        ValueError: not a version.
    """
    return _SemverMessage(canonical=version_of(text).canonical)


def _of_nano(nano: int) -> object:
    return _QuantityMessage(canonical=str(nano))


def _nano(value: Any) -> int:
    return int(value.canonical)


def _version(value: Any) -> Version:
    return version_of(value.canonical)


def _reads(parse: Any, *arguments: object) -> bool:
    try:
        parse(*arguments)
    except ValueError:
        return False
    return True


def _parse_version(text: str, normalise: bool = False) -> Version:
    return normalised_version(text) if normalise else version_of(text)


def _semver(text: str, normalise: bool = False) -> object:
    return _SemverMessage(canonical=_parse_version(text, normalise).canonical)


def _function(name: str, *overloads: Any) -> Any:
    return cel.FunctionDecl(name, list(overloads))


def _overload(name: str, result: Any, parameters: list[Any], implementation: Any) -> Any:
    return cel.Overload(name, return_type=result, parameters=parameters, impl=implementation)


def _method(name: str, result: Any, parameters: list[Any], implementation: Any) -> Any:
    return cel.Overload(
        name, return_type=result, parameters=parameters, is_member=True, impl=implementation
    )


def _quantity_functions() -> list[Any]:
    q, n = _QUANTITY, _nano
    return [
        _function("quantity", _overload("string_to_quantity", q, [_T.STRING], quantity_value)),
        _function("isQuantity", _overload(
            "is_quantity_string", _T.BOOL, [_T.STRING], lambda s: _reads(signed_nano, s))),
        _function("sign", _overload("quantity_sign", _T.INT, [q], lambda a: sign(n(a)))),
        _function("isInteger", _method(
            "quantity_is_integer", _T.BOOL, [q], lambda a: is_integer(n(a)))),
        _function("asInteger", _method(
            "quantity_get_int", _T.INT, [q], lambda a: as_integer(n(a)))),
        _function("asApproximateFloat", _method(
            "quantity_get_float", _T.DOUBLE, [q], lambda a: n(a) / NANO_PER_UNIT)),
        _function(
            "add",
            _method("quantity_add", q, [q, q], lambda a, b: _of_nano(n(a) + n(b))),
            _method("quantity_add_int", q, [q, _T.INT],
                    lambda a, b: _of_nano(n(a) + b * NANO_PER_UNIT)),
        ),
        _function(
            "sub",
            _method("quantity_sub", q, [q, q], lambda a, b: _of_nano(n(a) - n(b))),
            _method("quantity_sub_int", q, [q, _T.INT],
                    lambda a, b: _of_nano(n(a) - b * NANO_PER_UNIT)),
        ),
    ]  # fmt: skip


def _version_functions() -> list[Any]:
    v = _SEMVER
    return [
        _function(
            "semver",
            _overload("string_to_semver", v, [_T.STRING], _semver),
            _overload("string_bool_to_semver", v, [_T.STRING, _T.BOOL], _semver),
        ),
        _function(
            "isSemver",
            _overload("is_semver_string", _T.BOOL, [_T.STRING],
                      lambda s: _reads(_parse_version, s)),
            _overload("is_semver_string_bool", _T.BOOL, [_T.STRING, _T.BOOL],
                      lambda s, b: _reads(_parse_version, s, b)),
        ),
        _function("major", _method("semver_major", _T.INT, [v], lambda a: _version(a).major)),
        _function("minor", _method("semver_minor", _T.INT, [v], lambda a: _version(a).minor)),
        _function("patch", _method("semver_patch", _T.INT, [v], lambda a: _version(a).patch)),
    ]  # fmt: skip


def _ordered(value: Any) -> Any:
    return _nano(value) if isinstance(value, _QuantityMessage) else _version(value)


def _comparisons() -> list[Any]:
    """The library tells overloads apart by kind at run time, and both types are messages there: so
    one implementation serves both, while the checker knows two declarations."""
    q, v = _QUANTITY, _SEMVER

    def both(name: str, suffix: str, result: Any, implementation: Any) -> Any:
        return _function(
            name,
            _method(f"quantity_{suffix}", result, [q, q], implementation),
            _method(f"semver_{suffix}", result, [v, v], None),
        )

    def compare(a: Any, b: Any) -> int:
        x, y = _ordered(a), _ordered(b)
        return int(x > y) - int(x < y)

    return [
        both("isGreaterThan", "is_greater_than", _T.BOOL, lambda a, b: compare(a, b) > 0),
        both("isLessThan", "is_less_than", _T.BOOL, lambda a, b: compare(a, b) < 0),
        both("compareTo", "compare_to", _T.INT, compare),
    ]


def _set_functions() -> list[Any]:
    lists = [_T.List(_T.DYN), _T.List(_T.DYN)]

    def contains(a: list[Any], b: list[Any]) -> bool:
        return all(value in a for value in b)

    return [
        _function("sets.contains", _overload("list_sets_contains_list", _T.BOOL, lists, contains)),
        _function("sets.equivalent", _overload(
            "list_sets_equivalent_list", _T.BOOL, lists,
            lambda a, b: contains(a, b) and contains(b, a))),
        _function("sets.intersects", _overload(
            "list_sets_intersects_list", _T.BOOL, lists,
            lambda a, b: any(value in a for value in b))),
    ]  # fmt: skip


def new_environment() -> Any:
    """The environment; ``device`` alone is untyped, its fields are typed as upstream's are."""
    return cel.NewEnv(
        _POOL,
        variables={
            "device": _T.DYN,
            "device.driver": _T.STRING,
            "device.allowMultipleAllocations": _T.BOOL,
            "device.attributes": _T.Map(_T.STRING, _T.Map(_T.STRING, _T.DYN)),
            "device.capacity": _T.Map(_T.STRING, _T.Map(_T.STRING, _QUANTITY)),
        },
        extensions=[
            ext_bindings.ExtBindings(), ext_strings.ExtStrings(), ext_optional.ExtOptional(),
        ],
        functions=[
            *_quantity_functions(), *_version_functions(), *_comparisons(), *_set_functions(),
        ],
    )  # fmt: skip
