"""What tenants and namespaces have in common: how a parent is changed and how it is deleted.

A deletion takes two decisions, because the children of a parent live in other shards: the parent is
closed for children, then deleted once every shard has agreed (docs/flows/inventory.md).
``tenant`` and ``namespace`` have what differs: the state, the events, and how one is created.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar, assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.governance.policies import PolicyLevel
from nextgen.kernel.routing.renamed_parents import is_of_one_rename
from shards.domain.life import Life
from shards.domain.policies import PackedPolicies, SetPolicies, changes_nothing, check_set
from shards.domain.properties import (
    Properties,
    check_properties,
    with_marks,
)


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Replace all properties. ``expected_version`` 0 means any.

    ``is_rename``: a rename sets them, with its marks. Others leave the marks as they are.
    """

    name: str
    properties: Properties
    expected_version: int = 0
    is_rename: bool = False


@dataclass(frozen=True, slots=True)
class StartDeletion:
    """``expected_version`` 0 means any."""

    name: str
    expected_version: int = 0


@dataclass(frozen=True, slots=True)
class AbortDeletion:
    """Some shard has children of it: the parent stays."""

    name: str
    parent_id: str


@dataclass(frozen=True, slots=True)
class FinishDeletion:
    """Every shard has closed its gate for ``parent_id``."""

    name: str
    parent_id: str


ParentCommand = SetProperties | SetPolicies | StartDeletion | AbortDeletion | FinishDeletion


class Parent(Protocol):
    """State of a tenant or namespace, a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def parent_id(self) -> str: ...
    @property
    def properties(self) -> Properties: ...
    @property
    def version(self) -> int: ...
    @property
    def life(self) -> Life: ...
    @property
    def policies(self) -> PackedPolicies: ...
    @property
    def policies_version(self) -> int: ...


State = TypeVar("State", bound=Parent)
Decision = Accepted[Any] | Rejected


@dataclass(frozen=True, slots=True)
class ParentRules(Generic[State]):
    """The rules of one kind of parent, by the types of its events. Their fields are:"""

    level: PolicyLevel
    properties_set: type  # name, properties
    policies_set: type  # name, id, policies, policies_version
    deletion_started: type  # name
    deletion_aborted: type  # name
    deleted: type  # name, id

    def decide_create(
        self,
        parent: State | None,
        name: str,
        parent_id: str,
        created: Any,
        policies: SetPolicies | None = None,
        *,
        is_rename: bool = False,
    ) -> Decision:
        """Decide about creating the parent, by its event ``created``, with its first policies.

        ``is_rename``: it is the new name of one whose rename goes on if it was begun before.
        """
        if parent is not None:
            if parent.parent_id == parent_id:
                return Accepted(())
            if is_rename and is_of_one_rename(dict(parent.properties), dict(created.properties)):
                is_deleting = parent.life is Life.DELETING
                return self._being_deleted(name) if is_deleting else Accepted(())
            return self._rejected(RejectionCode.ALREADY_EXISTS, name, "already exists")
        if not is_rename:
            created = replace(created, properties=with_marks(created.properties))
        refusal = check_properties(created.properties)
        if policies is None or not policies.packed:
            return refusal or Accepted((created,))
        refusal = refusal or check_set(policies, self.level, 0)
        policies_set = self.policies_set(name, parent_id, policies.packed, 1)
        return refusal or Accepted((created, policies_set))

    def decide(self, parent: State | None, command: ParentCommand) -> Decision:
        """Decide what ``command`` means for ``parent``."""
        match command:
            case SetProperties():
                return self._decide_set_properties(parent, command)
            case SetPolicies():
                return self._decide_set_policies(parent, command)
            case StartDeletion():
                return self._decide_start_deletion(parent, command)
            case AbortDeletion():
                return self._decide_abort_deletion(parent, command)
            case FinishDeletion():
                return self._decide_finish_deletion(parent, command)
            case _:
                assert_never(command)

    def evolve(self, parent: State | None, event: Any) -> State | None:
        """Return ``parent`` as it is after an event that did not create it."""
        kind = type(event)
        if kind is self.deleted:
            return None
        assert parent is not None, (
            f"{kind.__name__} for {self.level.value} {event.name}, never created"
        )
        version = parent.version + 1
        if kind is self.properties_set:
            return replace(parent, properties=event.properties, version=version)
        if kind is self.policies_set:
            return replace(
                parent,
                policies=event.policies,
                policies_version=event.policies_version,
                version=version,
            )
        if kind is self.deletion_started:
            return replace(parent, life=Life.DELETING, version=version)
        assert kind is self.deletion_aborted, f"{kind.__name__} is no event of a {self.level.value}"
        return replace(parent, life=Life.ACTIVE, version=version)

    def _decide_set_properties(self, parent: State | None, command: SetProperties) -> Decision:
        if parent is None:
            return self._not_found(command.name)
        if parent.life is Life.DELETING:
            return self._being_deleted(command.name)
        wanted = command.properties
        if not command.is_rename:
            wanted = with_marks(wanted, parent.properties)
        if parent.properties == wanted:
            return Accepted(())
        refusal = self._mismatch(parent, command.name, command.expected_version)
        refusal = refusal or check_properties(wanted)
        return refusal or Accepted((self.properties_set(command.name, wanted),))

    def _decide_set_policies(self, parent: State | None, command: SetPolicies) -> Decision:
        if parent is None:
            return self._not_found(command.name)
        if parent.life is Life.DELETING:
            return self._being_deleted(command.name)
        version = parent.policies_version
        refusal = check_set(command, self.level, version)
        if refusal is not None:
            return refusal
        if changes_nothing(command, parent.policies):
            return Accepted(())
        event = self.policies_set(command.name, parent.parent_id, command.packed, version + 1)
        return Accepted((event,))

    def _decide_start_deletion(self, parent: State | None, command: StartDeletion) -> Decision:
        if parent is None:
            return self._not_found(command.name)
        if parent.life is Life.DELETING:
            return Accepted(())
        refusal = self._mismatch(parent, command.name, command.expected_version)
        return refusal or Accepted((self.deletion_started(command.name),))

    def _decide_abort_deletion(self, parent: State | None, command: AbortDeletion) -> Decision:
        if parent is None or parent.parent_id != command.parent_id:
            return self._not_found(command.name)
        if parent.life is Life.ACTIVE:
            return Accepted(())
        return Accepted((self.deletion_aborted(command.name),))

    def _decide_finish_deletion(self, parent: State | None, command: FinishDeletion) -> Decision:
        # Absent, or replaced by another of the same name: this one was deleted already.
        if parent is None or parent.parent_id != command.parent_id:
            return Accepted(())
        if parent.life is Life.ACTIVE:
            message = f"deletion of {self.level.value} {command.name} was not started"
            return Rejected(RejectionCode.NOT_ALLOWED, message)
        return Accepted((self.deleted(command.name, command.parent_id),))

    def _mismatch(self, parent: State, name: str, expected_version: int) -> Rejected | None:
        if expected_version in (0, parent.version):
            return None
        return self._rejected(
            RejectionCode.VERSION_MISMATCH,
            name,
            f"is at version {parent.version}, command expected {expected_version}",
        )

    def _not_found(self, name: str) -> Rejected:
        return self._rejected(RejectionCode.NOT_FOUND, name, "does not exist")

    def _being_deleted(self, name: str) -> Rejected:
        return self._rejected(RejectionCode.NOT_ALLOWED, name, "is being deleted")

    def _rejected(self, code: RejectionCode, name: str, why: str) -> Rejected:
        return Rejected(code, f"{self.level.value} {name} {why}")
