"""Pod groups: which pods want to run together, and what the group asks for.

Two APIs say it. Upstream's PodGroup (scheduling.k8s.io/v1beta1, KEP-4671) is named by a pod's
``spec.schedulingGroup``; the scheduler-plugins' PodGroup (scheduling.x-k8s.io/v1alpha1) by a label.
Both become one :class:`GroupRow`, which is what travels in the Binder's log.
"""

from __future__ import annotations

import msgspec

from stretto.model.objects import Pod

POD_GROUP = "PodGroup"
"""Object kind in the log; key: namespace/name, for scheduler-plugins' groups with a suffix."""
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
LEGACY_API = "scheduling.x-k8s.io/v1alpha1"
"""Where it is not served, the label means nothing."""
LEGACY_GROUPS = "@scheduling.x-k8s.io"
"""End of the keys of scheduler-plugins' groups, which are not upstream's of the same name."""
REQUIRED_TOPOLOGY = "stretto.io/required-topology-key"
PREFERRED_TOPOLOGY = "stretto.io/preferred-topology-key"
DISRUPTION_MODE = "stretto.io/disruption-mode"
"""Annotations on either PodGroup, for what its own API cannot say; the last one: ``all`` or
``single``."""
GANG_UNSCHEDULABLE = "pod group is unschedulable"
"""What members of a gang are told that found room while others did not."""
MAX_MEMBERS = 1024
"""The largest gang that is placed in one decision."""


INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""Type of the condition that a scheduler writes; once True it stays (KEP-4671)."""


class GroupCondition(msgspec.Struct, frozen=True, array_like=True):
    """What PodGroupInitiallyScheduled says."""

    status: str = ""
    """"True", "False" or empty for a group without the condition."""
    reason: str = ""
    message: str = ""


_UNTOLD = GroupCondition()
PLACED = GroupCondition("True", "Scheduled", "")


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """A pod group as scheduling reads it."""

    min_count: int = 0
    """Members that run together or not at all; 0: no gang, members are placed one by one."""
    topology_key: str = ""
    """All members go into one domain of this node label."""
    topology_required: bool = False
    """False: one domain is preferred."""
    problem: str = ""
    """Why nothing may be placed against this group as it is."""
    generation: int = 0
    """metadata.generation, for the group's conditions."""
    priority: int | None = None
    """What all members must have too; None: whatever they have in common."""
    uid: str = ""
    """Of a group whose status we write; scheduler-plugins' groups have a controller for that."""
    told: GroupCondition = GroupCondition()
    """The condition that it has."""
    whole: bool = False
    """Preemption takes all members or none (disruptionMode ``all``)."""

    @property
    def asks(self) -> GroupRow:
        """The row without what was told: what placing depends on."""
        return msgspec.structs.replace(self, told=_UNTOLD)


class _Api(msgspec.Struct, frozen=True, rename="camel"):
    """camelCase on the wire."""


class _Gang(_Api, frozen=True):
    min_count: int = 0


class _Policy(_Api, frozen=True):
    gang: _Gang | None = None


class _Topology(_Api, frozen=True):
    key: str = ""


class _Constraints(_Api, frozen=True):
    topology: list[_Topology] | None = None


class _All(_Api, frozen=True):
    """An empty object."""


class _DisruptionMode(_Api, frozen=True):
    all: _All | None = None


class _GroupSpec(_Api, frozen=True):
    scheduling_policy: _Policy = _Policy()
    scheduling_constraints: _Constraints | None = None
    disruption_mode: _DisruptionMode | None = None
    parent_composite_pod_group_name: str | None = None
    priority: int | None = None
    min_member: int | None = None


class _Condition(_Api, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _GroupStatus(_Api, frozen=True):
    conditions: list[_Condition] | None = None


class GroupMeta(_Api, frozen=True):
    """What identifies a group, and its annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    annotations: dict[str, str] | None = None


class PodGroup(_Api, frozen=True):
    """A PodGroup of either API."""

    metadata: GroupMeta = GroupMeta()
    spec: _GroupSpec = _GroupSpec()
    status: _GroupStatus | None = None


def group_row_of(group: PodGroup) -> GroupRow:
    """What scheduling reads of a group."""
    spec, notes = group.spec, group.metadata.annotations or {}
    gang = spec.scheduling_policy.gang
    count = spec.min_member if spec.min_member is not None else gang.min_count if gang else 0
    upstream = spec.min_member is None
    topology = (spec.scheduling_constraints or _Constraints()).topology or []
    key = topology[0].key if topology else notes.get(REQUIRED_TOPOLOGY, "")
    mode = spec.disruption_mode
    whole = notes.get(DISRUPTION_MODE) == "all" if mode is None else mode.all is not None
    problem = ""
    if count < 0:
        problem = f"the group's minimum of {count} members is negative"
    elif count > MAX_MEMBERS:
        problem = f"the group's minimum of {count} members is above {MAX_MEMBERS}"
    elif spec.parent_composite_pod_group_name:
        problem = "the group belongs to a CompositePodGroup, which this release does not support"
    elif len(topology) > 1:
        problem = "the group has several topology constraints; this release supports one"
    return GroupRow(
        min_count=count,
        topology_key=key or notes.get(PREFERRED_TOPOLOGY, ""),
        topology_required=bool(key),
        problem=problem,
        generation=group.metadata.generation,
        priority=spec.priority if upstream else None,
        uid=group.metadata.uid if upstream else "",
        told=_told(group.status) if upstream else _UNTOLD,
        whole=whole,
    )


def _told(status: _GroupStatus | None) -> GroupCondition:
    for found in (status.conditions if status is not None else None) or ():
        if found.type == INITIALLY_SCHEDULED:
            return GroupCondition(found.status, found.reason, found.message)
    return _UNTOLD


def group_key_of(pod: Pod) -> str:
    """The key of the group that a pod names; '' if none."""
    named = pod.spec.scheduling_group
    if named is not None and named.pod_group_name:
        return f"{pod.metadata.namespace}/{named.pod_group_name}"
    name = (pod.metadata.labels or {}).get(GROUP_LABEL, "")
    return f"{pod.metadata.namespace}/{name}{LEGACY_GROUPS}" if name else ""


def group_name_of(key: str) -> str:
    """The name in a group's key."""
    return key.partition("/")[2].removesuffix(LEGACY_GROUPS)


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(GroupRow)


def encode_group(row: GroupRow) -> bytes:
    """Payload of a PodGroup object."""
    return _encoder.encode(row)


def decode_group(payload: bytes) -> GroupRow:
    """Read the payload of a PodGroup object.

    Raises:
        msgspec.ValidationError: the bytes are not a group.
    """
    return _decoder.decode(payload)
