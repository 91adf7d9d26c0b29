from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FollowKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FOLLOW_KIND_UNSPECIFIED: _ClassVar[FollowKind]
    FULL_BEGIN: _ClassVar[FollowKind]
    FULL_CHUNK: _ClassVar[FollowKind]
    FULL_END: _ClassVar[FollowKind]
    DELTA: _ClassVar[FollowKind]
    HEARTBEAT: _ClassVar[FollowKind]
FOLLOW_KIND_UNSPECIFIED: FollowKind
FULL_BEGIN: FollowKind
FULL_CHUNK: FollowKind
FULL_END: FollowKind
DELTA: FollowKind
HEARTBEAT: FollowKind

class ShapeDefinition(_message.Message):
    __slots__ = ("id", "definition")
    ID_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    id: int
    definition: bytes
    def __init__(self, id: _Optional[int] = ..., definition: _Optional[bytes] = ...) -> None: ...

class Units(_message.Message):
    __slots__ = ("unit_id", "attempt", "dispatcher_epoch", "min_sequence", "member_count", "pod_uid", "pod_namespace", "pod_name", "resource_version", "shape", "avoid", "avoid_count", "document", "own", "stake")
    UNIT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    POD_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    AVOID_FIELD_NUMBER: _ClassVar[int]
    AVOID_COUNT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    STAKE_FIELD_NUMBER: _ClassVar[int]
    unit_id: _containers.RepeatedScalarFieldContainer[str]
    attempt: _containers.RepeatedScalarFieldContainer[int]
    dispatcher_epoch: _containers.RepeatedScalarFieldContainer[int]
    min_sequence: _containers.RepeatedScalarFieldContainer[int]
    member_count: _containers.RepeatedScalarFieldContainer[int]
    pod_uid: _containers.RepeatedScalarFieldContainer[str]
    pod_namespace: _containers.RepeatedScalarFieldContainer[str]
    pod_name: _containers.RepeatedScalarFieldContainer[str]
    resource_version: _containers.RepeatedScalarFieldContainer[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    avoid: _containers.RepeatedScalarFieldContainer[int]
    avoid_count: _containers.RepeatedScalarFieldContainer[int]
    document: _containers.RepeatedScalarFieldContainer[bytes]
    own: _containers.RepeatedScalarFieldContainer[int]
    stake: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, unit_id: _Optional[_Iterable[str]] = ..., attempt: _Optional[_Iterable[int]] = ..., dispatcher_epoch: _Optional[_Iterable[int]] = ..., min_sequence: _Optional[_Iterable[int]] = ..., member_count: _Optional[_Iterable[int]] = ..., pod_uid: _Optional[_Iterable[str]] = ..., pod_namespace: _Optional[_Iterable[str]] = ..., pod_name: _Optional[_Iterable[str]] = ..., resource_version: _Optional[_Iterable[int]] = ..., shape: _Optional[_Iterable[int]] = ..., avoid: _Optional[_Iterable[int]] = ..., avoid_count: _Optional[_Iterable[int]] = ..., document: _Optional[_Iterable[bytes]] = ..., own: _Optional[_Iterable[int]] = ..., stake: _Optional[_Iterable[int]] = ...) -> None: ...

class FromShard(_message.Message):
    __slots__ = ("hello", "credits", "unplaceable", "handed_back", "settled", "draining", "settled_attempt", "settled_epoch")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    UNPLACEABLE_FIELD_NUMBER: _ClassVar[int]
    HANDED_BACK_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SETTLED_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SETTLED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    hello: ShardHello
    credits: int
    unplaceable: UnplaceableBatch
    handed_back: HandBackBatch
    settled: _containers.RepeatedScalarFieldContainer[str]
    draining: bool
    settled_attempt: _containers.RepeatedScalarFieldContainer[int]
    settled_epoch: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, hello: _Optional[_Union[ShardHello, _Mapping]] = ..., credits: _Optional[int] = ..., unplaceable: _Optional[_Union[UnplaceableBatch, _Mapping]] = ..., handed_back: _Optional[_Union[HandBackBatch, _Mapping]] = ..., settled: _Optional[_Iterable[str]] = ..., draining: _Optional[bool] = ..., settled_attempt: _Optional[_Iterable[int]] = ..., settled_epoch: _Optional[_Iterable[int]] = ...) -> None: ...

class ShardHello(_message.Message):
    __slots__ = ("shard", "incarnation", "protocol", "profiles")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    shard: str
    incarnation: str
    protocol: int
    profiles: str
    def __init__(self, shard: _Optional[str] = ..., incarnation: _Optional[str] = ..., protocol: _Optional[int] = ..., profiles: _Optional[str] = ...) -> None: ...

class ToShard(_message.Message):
    __slots__ = ("shapes", "units", "dispatcher_epoch", "not_leader", "forgotten")
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    shapes: _containers.RepeatedCompositeFieldContainer[ShapeDefinition]
    units: Units
    dispatcher_epoch: int
    not_leader: NotLeader
    forgotten: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shapes: _Optional[_Iterable[_Union[ShapeDefinition, _Mapping]]] = ..., units: _Optional[_Union[Units, _Mapping]] = ..., dispatcher_epoch: _Optional[int] = ..., not_leader: _Optional[_Union[NotLeader, _Mapping]] = ..., forgotten: _Optional[_Iterable[int]] = ...) -> None: ...

class NotLeader(_message.Message):
    __slots__ = ("leader",)
    LEADER_FIELD_NUMBER: _ClassVar[int]
    leader: str
    def __init__(self, leader: _Optional[str] = ...) -> None: ...

class UnplaceableBatch(_message.Message):
    __slots__ = ("unit_id", "attempt", "dispatcher_epoch", "shape", "binder_epoch", "sequence", "diagnosis", "diagnoses")
    UNIT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    BINDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSIS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSES_FIELD_NUMBER: _ClassVar[int]
    unit_id: _containers.RepeatedScalarFieldContainer[str]
    attempt: _containers.RepeatedScalarFieldContainer[int]
    dispatcher_epoch: _containers.RepeatedScalarFieldContainer[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    binder_epoch: _containers.RepeatedScalarFieldContainer[int]
    sequence: _containers.RepeatedScalarFieldContainer[int]
    diagnosis: _containers.RepeatedScalarFieldContainer[int]
    diagnoses: _containers.RepeatedCompositeFieldContainer[Diagnosis]
    def __init__(self, unit_id: _Optional[_Iterable[str]] = ..., attempt: _Optional[_Iterable[int]] = ..., dispatcher_epoch: _Optional[_Iterable[int]] = ..., shape: _Optional[_Iterable[int]] = ..., binder_epoch: _Optional[_Iterable[int]] = ..., sequence: _Optional[_Iterable[int]] = ..., diagnosis: _Optional[_Iterable[int]] = ..., diagnoses: _Optional[_Iterable[_Union[Diagnosis, _Mapping]]] = ...) -> None: ...

class Diagnosis(_message.Message):
    __slots__ = ("message", "plugins", "nodes", "reason", "count", "reason_plugin", "unresolvable", "node_plugin", "plugin_nodes", "prefilter", "error", "clears", "group", "found", "preemption", "waits")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PLUGINS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_PLUGIN_FIELD_NUMBER: _ClassVar[int]
    UNRESOLVABLE_FIELD_NUMBER: _ClassVar[int]
    NODE_PLUGIN_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_NODES_FIELD_NUMBER: _ClassVar[int]
    PREFILTER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CLEARS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    PREEMPTION_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    message: str
    plugins: _containers.RepeatedScalarFieldContainer[str]
    nodes: int
    reason: _containers.RepeatedScalarFieldContainer[str]
    count: _containers.RepeatedScalarFieldContainer[int]
    reason_plugin: _containers.RepeatedScalarFieldContainer[str]
    unresolvable: _containers.RepeatedScalarFieldContainer[int]
    node_plugin: _containers.RepeatedScalarFieldContainer[str]
    plugin_nodes: _containers.RepeatedScalarFieldContainer[int]
    prefilter: bool
    error: bool
    clears: bool
    group: str
    found: int
    preemption: str
    waits: bool
    def __init__(self, message: _Optional[str] = ..., plugins: _Optional[_Iterable[str]] = ..., nodes: _Optional[int] = ..., reason: _Optional[_Iterable[str]] = ..., count: _Optional[_Iterable[int]] = ..., reason_plugin: _Optional[_Iterable[str]] = ..., unresolvable: _Optional[_Iterable[int]] = ..., node_plugin: _Optional[_Iterable[str]] = ..., plugin_nodes: _Optional[_Iterable[int]] = ..., prefilter: _Optional[bool] = ..., error: _Optional[bool] = ..., clears: _Optional[bool] = ..., group: _Optional[str] = ..., found: _Optional[int] = ..., preemption: _Optional[str] = ..., waits: _Optional[bool] = ...) -> None: ...

class HandBackBatch(_message.Message):
    __slots__ = ("unit_id", "attempt", "dispatcher_epoch", "reason")
    UNIT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    unit_id: _containers.RepeatedScalarFieldContainer[str]
    attempt: _containers.RepeatedScalarFieldContainer[int]
    dispatcher_epoch: _containers.RepeatedScalarFieldContainer[int]
    reason: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, unit_id: _Optional[_Iterable[str]] = ..., attempt: _Optional[_Iterable[int]] = ..., dispatcher_epoch: _Optional[_Iterable[int]] = ..., reason: _Optional[_Iterable[str]] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("follower", "epoch", "sequence", "protocol")
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    follower: str
    epoch: int
    sequence: int
    protocol: int
    def __init__(self, follower: _Optional[str] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., protocol: _Optional[int] = ...) -> None: ...

class FollowBatch(_message.Message):
    __slots__ = ("epoch", "sequence", "kind", "shapes", "nodes", "pods", "removed_nodes", "objects", "not_leader", "stamp_ms", "dropped_shapes")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_NODES_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    STAMP_MS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_SHAPES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    sequence: int
    kind: FollowKind
    shapes: _containers.RepeatedCompositeFieldContainer[ShapeDefinition]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeChange]
    pods: PodChanges
    removed_nodes: _containers.RepeatedScalarFieldContainer[int]
    objects: _containers.RepeatedCompositeFieldContainer[ObjectRow]
    not_leader: NotLeader
    stamp_ms: int
    dropped_shapes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., kind: _Optional[_Union[FollowKind, str]] = ..., shapes: _Optional[_Iterable[_Union[ShapeDefinition, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[NodeChange, _Mapping]]] = ..., pods: _Optional[_Union[PodChanges, _Mapping]] = ..., removed_nodes: _Optional[_Iterable[int]] = ..., objects: _Optional[_Iterable[_Union[ObjectRow, _Mapping]]] = ..., not_leader: _Optional[_Union[NotLeader, _Mapping]] = ..., stamp_ms: _Optional[int] = ..., dropped_shapes: _Optional[_Iterable[int]] = ...) -> None: ...

class NodeChange(_message.Message):
    __slots__ = ("id", "definition", "frozen")
    ID_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    id: int
    definition: bytes
    frozen: bool
    def __init__(self, id: _Optional[int] = ..., definition: _Optional[bytes] = ..., frozen: _Optional[bool] = ...) -> None: ...

class PodChanges(_message.Message):
    __slots__ = ("sign", "shape", "node", "uid", "count", "start", "flags")
    SIGN_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    sign: _containers.RepeatedScalarFieldContainer[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    node: _containers.RepeatedScalarFieldContainer[int]
    uid: _containers.RepeatedScalarFieldContainer[str]
    count: _containers.RepeatedScalarFieldContainer[int]
    start: _containers.RepeatedScalarFieldContainer[int]
    flags: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sign: _Optional[_Iterable[int]] = ..., shape: _Optional[_Iterable[int]] = ..., node: _Optional[_Iterable[int]] = ..., uid: _Optional[_Iterable[str]] = ..., count: _Optional[_Iterable[int]] = ..., start: _Optional[_Iterable[int]] = ..., flags: _Optional[_Iterable[int]] = ...) -> None: ...

class ObjectRow(_message.Message):
    __slots__ = ("kind", "key", "version", "payload", "removed")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: str
    version: int
    payload: bytes
    removed: bool
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[str] = ..., version: _Optional[int] = ..., payload: _Optional[bytes] = ..., removed: _Optional[bool] = ...) -> None: ...

class ProposalBatch(_message.Message):
    __slots__ = ("hello", "shapes", "units", "binder_epoch", "node", "spare", "spare_count", "decided_at", "forgotten", "resent", "victim_uid", "victim_count", "diagnosis", "diagnoses", "release_claim", "release_claim_uid", "release_pod")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    BINDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SPARE_FIELD_NUMBER: _ClassVar[int]
    SPARE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    RESENT_FIELD_NUMBER: _ClassVar[int]
    VICTIM_UID_FIELD_NUMBER: _ClassVar[int]
    VICTIM_COUNT_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSIS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSES_FIELD_NUMBER: _ClassVar[int]
    RELEASE_CLAIM_FIELD_NUMBER: _ClassVar[int]
    RELEASE_CLAIM_UID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_POD_FIELD_NUMBER: _ClassVar[int]
    hello: ShardHello
    shapes: _containers.RepeatedCompositeFieldContainer[ShapeDefinition]
    units: Units
    binder_epoch: int
    node: _containers.RepeatedScalarFieldContainer[int]
    spare: _containers.RepeatedScalarFieldContainer[int]
    spare_count: _containers.RepeatedScalarFieldContainer[int]
    decided_at: _containers.RepeatedScalarFieldContainer[int]
    forgotten: _containers.RepeatedScalarFieldContainer[int]
    resent: bool
    victim_uid: _containers.RepeatedScalarFieldContainer[str]
    victim_count: _containers.RepeatedScalarFieldContainer[int]
    diagnosis: _containers.RepeatedScalarFieldContainer[int]
    diagnoses: _containers.RepeatedCompositeFieldContainer[Diagnosis]
    release_claim: _containers.RepeatedScalarFieldContainer[str]
    release_claim_uid: _containers.RepeatedScalarFieldContainer[str]
    release_pod: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, hello: _Optional[_Union[ShardHello, _Mapping]] = ..., shapes: _Optional[_Iterable[_Union[ShapeDefinition, _Mapping]]] = ..., units: _Optional[_Union[Units, _Mapping]] = ..., binder_epoch: _Optional[int] = ..., node: _Optional[_Iterable[int]] = ..., spare: _Optional[_Iterable[int]] = ..., spare_count: _Optional[_Iterable[int]] = ..., decided_at: _Optional[_Iterable[int]] = ..., forgotten: _Optional[_Iterable[int]] = ..., resent: _Optional[bool] = ..., victim_uid: _Optional[_Iterable[str]] = ..., victim_count: _Optional[_Iterable[int]] = ..., diagnosis: _Optional[_Iterable[int]] = ..., diagnoses: _Optional[_Iterable[_Union[Diagnosis, _Mapping]]] = ..., release_claim: _Optional[_Iterable[str]] = ..., release_claim_uid: _Optional[_Iterable[str]] = ..., release_pod: _Optional[_Iterable[str]] = ...) -> None: ...

class VerdictBatch(_message.Message):
    __slots__ = ("unit_id", "attempt", "dispatcher_epoch", "kind", "cause", "sequence", "node", "node_count", "binder_epoch", "not_leader")
    UNIT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BINDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    unit_id: _containers.RepeatedScalarFieldContainer[str]
    attempt: _containers.RepeatedScalarFieldContainer[int]
    dispatcher_epoch: _containers.RepeatedScalarFieldContainer[int]
    kind: _containers.RepeatedScalarFieldContainer[int]
    cause: _containers.RepeatedScalarFieldContainer[int]
    sequence: _containers.RepeatedScalarFieldContainer[int]
    node: _containers.RepeatedScalarFieldContainer[int]
    node_count: _containers.RepeatedScalarFieldContainer[int]
    binder_epoch: int
    not_leader: NotLeader
    def __init__(self, unit_id: _Optional[_Iterable[str]] = ..., attempt: _Optional[_Iterable[int]] = ..., dispatcher_epoch: _Optional[_Iterable[int]] = ..., kind: _Optional[_Iterable[int]] = ..., cause: _Optional[_Iterable[int]] = ..., sequence: _Optional[_Iterable[int]] = ..., node: _Optional[_Iterable[int]] = ..., node_count: _Optional[_Iterable[int]] = ..., binder_epoch: _Optional[int] = ..., not_leader: _Optional[_Union[NotLeader, _Mapping]] = ...) -> None: ...

class OutcomeRequest(_message.Message):
    __slots__ = ("dispatcher_epoch", "dispatcher", "acknowledged", "withdraw", "profiles", "ask", "label_keys")
    DISPATCHER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    WITHDRAW_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    LABEL_KEYS_FIELD_NUMBER: _ClassVar[int]
    dispatcher_epoch: int
    dispatcher: str
    acknowledged: int
    withdraw: _containers.RepeatedScalarFieldContainer[str]
    profiles: str
    ask: _containers.RepeatedScalarFieldContainer[str]
    label_keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dispatcher_epoch: _Optional[int] = ..., dispatcher: _Optional[str] = ..., acknowledged: _Optional[int] = ..., withdraw: _Optional[_Iterable[str]] = ..., profiles: _Optional[str] = ..., ask: _Optional[_Iterable[str]] = ..., label_keys: _Optional[_Iterable[str]] = ...) -> None: ...

class OutcomeBatch(_message.Message):
    __slots__ = ("binder_epoch", "first_index", "unit_id", "attempt", "dispatcher_epoch", "kind", "cause", "sequence", "node", "shard", "detail", "resource_version", "member_uid", "member_count", "owned", "not_leader", "diagnosis", "diagnoses")
    BINDER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    UNIT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DISPATCHER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_UID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSIS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSES_FIELD_NUMBER: _ClassVar[int]
    binder_epoch: int
    first_index: int
    unit_id: _containers.RepeatedScalarFieldContainer[str]
    attempt: _containers.RepeatedScalarFieldContainer[int]
    dispatcher_epoch: _containers.RepeatedScalarFieldContainer[int]
    kind: _containers.RepeatedScalarFieldContainer[int]
    cause: _containers.RepeatedScalarFieldContainer[int]
    sequence: _containers.RepeatedScalarFieldContainer[int]
    node: _containers.RepeatedScalarFieldContainer[str]
    shard: _containers.RepeatedScalarFieldContainer[str]
    detail: _containers.RepeatedScalarFieldContainer[str]
    resource_version: _containers.RepeatedScalarFieldContainer[int]
    member_uid: _containers.RepeatedScalarFieldContainer[str]
    member_count: _containers.RepeatedScalarFieldContainer[int]
    owned: OwnedSet
    not_leader: NotLeader
    diagnosis: _containers.RepeatedScalarFieldContainer[int]
    diagnoses: _containers.RepeatedCompositeFieldContainer[Diagnosis]
    def __init__(self, binder_epoch: _Optional[int] = ..., first_index: _Optional[int] = ..., unit_id: _Optional[_Iterable[str]] = ..., attempt: _Optional[_Iterable[int]] = ..., dispatcher_epoch: _Optional[_Iterable[int]] = ..., kind: _Optional[_Iterable[int]] = ..., cause: _Optional[_Iterable[int]] = ..., sequence: _Optional[_Iterable[int]] = ..., node: _Optional[_Iterable[str]] = ..., shard: _Optional[_Iterable[str]] = ..., detail: _Optional[_Iterable[str]] = ..., resource_version: _Optional[_Iterable[int]] = ..., member_uid: _Optional[_Iterable[str]] = ..., member_count: _Optional[_Iterable[int]] = ..., owned: _Optional[_Union[OwnedSet, _Mapping]] = ..., not_leader: _Optional[_Union[NotLeader, _Mapping]] = ..., diagnosis: _Optional[_Iterable[int]] = ..., diagnoses: _Optional[_Iterable[_Union[Diagnosis, _Mapping]]] = ...) -> None: ...

class OwnedSet(_message.Message):
    __slots__ = ("pod_uid", "bound_uid", "unknown_uid", "complete")
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    BOUND_UID_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_UID_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    pod_uid: _containers.RepeatedScalarFieldContainer[str]
    bound_uid: _containers.RepeatedScalarFieldContainer[str]
    unknown_uid: _containers.RepeatedScalarFieldContainer[str]
    complete: bool
    def __init__(self, pod_uid: _Optional[_Iterable[str]] = ..., bound_uid: _Optional[_Iterable[str]] = ..., unknown_uid: _Optional[_Iterable[str]] = ..., complete: _Optional[bool] = ...) -> None: ...
