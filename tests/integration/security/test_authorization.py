"""A cluster whose clients need permissions: every door, each kind of role, and a revocation."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import pulsar
import pytest

from nextgen.cli.local.local_tokens import OPERATOR_ROLE, TOKENS
from nextgen.cli.local.plan import MINIMAL
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.broker_service_pb2 import ServesRequest, ServesResponse
from protos.nextgen.v1.shard_service_pb2 import TopicSpec
from tests.support.callers.secured_cluster import SecuredCluster, client
from tests.support.processes.local_cluster import blocking_cluster

NAMESPACE = "acme/orders"
TOPIC = "persistent://acme/orders/paid"
REST_TOPIC = "/admin/v2/persistent/acme/orders/paid"
PERMISSIONS = "/admin/v2/namespaces/acme/orders/permissions"
RECEIVE_MS = 20_000
SEND_MS = 10_000
"""After it a client gives up a message that no broker takes. It waits while the test goes on."""

SILENCE_MS = 2_000

ROLES = {
    "no permission": "nobody",
    "produce": "writer",
    "consume": "reader",
    "tenant admin": "keeper",
    "superuser": OPERATOR_ROLE,
}
"""The columns of the document's table, and who has what they say."""

DOCUMENT = Path(__file__).parents[3] / "docs" / "security.md"
HEADING = "### What each role gets at each door"


def granted(secured: SecuredCluster, path: str, actions: list[str]) -> None:
    status, answer = secured.http(path, secured.token(OPERATOR_ROLE), "POST", actions)
    assert status == 204, answer


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    data_dir = tmp_path_factory.mktemp("permitted")
    with blocking_cluster(data_dir, MINIMAL, authentication=TOKENS) as cluster:
        made = SecuredCluster(cluster, data_dir)
        operator = made.token(OPERATOR_ROLE)
        tenant = {"adminRoles": ["keeper"], "allowedClusters": ["test"]}
        assert made.http("/admin/v2/tenants/acme", operator, "PUT", tenant)[0] == 204
        keeper = made.token("keeper")
        for namespace in ("orders", "other"):
            path = f"/admin/v2/namespaces/acme/{namespace}"
            assert made.http(path, keeper, "PUT", {})[0] == 204
        assert made.http(REST_TOPIC, keeper, "PUT")[0] == 204
        granted(made, f"{PERMISSIONS}/writer", ["produce"])
        granted(made, f"{PERMISSIONS}/reader", ["consume"])
        yield made


REFUSALS = (pulsar.AuthorizationError, pulsar.LookupError)
"""What the library raises; the second if it may not list the topics that a pattern describes."""


class Refused(Exception):
    """A door refused a role for want of a permission."""


class Doors:
    """What a role tries at each door; each method raises ``Refused`` or answers."""

    def __init__(self, secured: SecuredCluster, role: str) -> None:
        self.secured = secured
        self.role = role
        self.token = secured.token(role)

    # The Pulsar protocol ----------------------------------------------------------------------

    def stock(self, act: Callable[[pulsar.Client], Any]) -> None:
        stock = client(self.secured.pulsar_at("discovery"), self.token)
        try:
            act(stock)
        except REFUSALS as error:
            raise Refused from error
        finally:
            stock.close()

    def look_up(self) -> None:
        self.stock(lambda stock: stock.get_topic_partitions(TOPIC))

    def produce(self) -> None:
        self.stock(lambda stock: stock.create_producer(TOPIC).send(b"hi"))

    def consume(self) -> None:
        self.stock(lambda stock: stock.subscribe(TOPIC, f"{self.role}-sub"))

    def subscribe_by_pattern(self) -> None:
        pattern = re.compile(f"persistent://{NAMESPACE}/pa.*")
        self.stock(lambda stock: stock.subscribe(pattern, f"{self.role}-pattern"))

    def read(self) -> None:
        self.stock(lambda stock: stock.create_reader(TOPIC, pulsar.MessageId.earliest))

    # Admin REST -------------------------------------------------------------------------------

    def rest(self, method: str, path: str, body: Any = None) -> None:
        status, answer = self.secured.http(path, self.token, method, body)
        if status == 403:
            assert "no permission to" in answer["reason"]
            raise Refused
        assert status < 400, answer

    def names_clusters(self) -> None:
        self.rest("GET", "/admin/v2/clusters")

    def lists_topics(self) -> None:
        self.rest("GET", "/admin/v2/persistent/acme/orders")

    def reads_stats(self) -> None:
        self.rest("GET", f"{REST_TOPIC}/stats")

    def looks_up_over_http(self) -> None:
        self.rest("GET", "/lookup/v2/topic/persistent/acme/orders/paid")

    def lists_subscriptions(self) -> None:
        self.rest("GET", f"{REST_TOPIC}/subscriptions")

    def makes_a_subscription(self) -> None:
        self.rest("PUT", f"{REST_TOPIC}/subscription/{self.role}-made")

    def creates_a_topic(self) -> None:
        self.rest("PUT", f"/admin/v2/persistent/acme/orders/{self.role}-rest")

    def reads_topic_policies(self) -> None:
        self.rest("GET", f"{REST_TOPIC}/retention")

    def sets_policies(self) -> None:
        self.rest("POST", "/admin/v2/namespaces/acme/orders/messageTTL", 3_600)

    def grants(self) -> None:
        self.rest("POST", f"{PERMISSIONS}/{self.role}-friend", ["produce"])

    def reads_the_tenant(self) -> None:
        self.rest("GET", "/admin/v2/tenants/acme")

    def lists_tenants(self) -> None:
        self.rest("GET", "/admin/v2/tenants")

    def creates_a_tenant(self) -> None:
        tenant = {"adminRoles": [], "allowedClusters": ["test"]}
        self.rest("PUT", f"/admin/v2/tenants/made-by-{self.role}", tenant)

    def reads_settings(self) -> None:
        self.rest("GET", "/admin/v2/brokers/configuration/runtime")

    # gRPC -------------------------------------------------------------------------------------

    def grpc(self, method: str, request: Any, answer: Any, *, is_stream: bool = False) -> Any:
        endpoint = self.secured.cluster.plan.discovery_endpoints[0]
        with grpc.insecure_channel(endpoint) as channel:
            path = f"/nextgen.v1.DiscoveryService/{method}"
            make = channel.unary_stream if is_stream else channel.unary_unary
            call = make(path, request.__class__.SerializeToString, answer.FromString)
            metadata = (("authorization", f"Bearer {self.token}"),)
            try:
                found = call(request, metadata=metadata, timeout=20)
                if not is_stream:
                    return found
                first = next(iter(found))
                found.cancel()
                return first
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.PERMISSION_DENIED:
                    raise Refused from error
                raise

    def looks_up_over_grpc(self) -> None:
        found = self.grpc("Lookup", pb.LookupRequest(topics=[TOPIC]), pb.LookupResponse)
        (answer,) = found.answers
        if answer.rejection_code == "FORBIDDEN":
            raise Refused
        assert answer.broker_id

    def lists_topics_over_grpc(self) -> None:
        self.grpc("ListTopics", pb.ListObjectsRequest(parent=NAMESPACE), pb.ListObjectsResponse)

    def watches_topics_over_grpc(self) -> None:
        request = pb.WatchRequest(prefix="persistent://acme/orders/")
        self.grpc("WatchTopics", request, pb.WatchUpdate, is_stream=True)

    def watches_names_over_grpc(self) -> None:
        request = pb.WatchRequest(pattern=f"{NAMESPACE}/.*")
        self.grpc("WatchTopics", request, pb.WatchUpdate, is_stream=True)

    def creates_a_topic_over_grpc(self) -> None:
        topic = TopicSpec(name=f"persistent://acme/orders/{self.role}-grpc")
        self.grpc("CreateTopics", pb.CreateTopicsRequest(topics=[topic]), pb.CreateTopicsResponse)

    def reads_counters_over_grpc(self) -> None:
        self.grpc("GetCounters", pb.GetCountersRequest(), pb.GetCountersResponse)

    # The command line -------------------------------------------------------------------------

    def lists_topics_by_the_command_line(self) -> None:
        target = self.secured.cluster.plan.discovery_endpoints[0]
        done = self.secured.command(
            *("topics", "list", NAMESPACE, "--target", target),
            NEXTGEN_TOKEN=self.token,
            NEXTGEN_DATA_DIR="/nowhere",
        )
        if done.returncode:
            assert "no permission to list" in done.stderr, done.stderr
            raise Refused


DOORS: dict[str, Callable[[Doors], None]] = {
    "Pulsar protocol: look a topic up": Doors.look_up,
    "Pulsar protocol: produce": Doors.produce,
    "Pulsar protocol: subscribe": Doors.consume,
    "Pulsar protocol: read": Doors.read,
    "Pulsar protocol: subscribe by a pattern": Doors.subscribe_by_pattern,
    "REST: names of clusters": Doors.names_clusters,
    "REST: look a topic up": Doors.looks_up_over_http,
    "REST: statistics of a topic": Doors.reads_stats,
    "REST: list topics": Doors.lists_topics,
    "REST: list subscriptions": Doors.lists_subscriptions,
    "REST: make a subscription": Doors.makes_a_subscription,
    "REST: create a topic": Doors.creates_a_topic,
    "REST: read a topic's policies": Doors.reads_topic_policies,
    "REST: set policies of a namespace": Doors.sets_policies,
    "REST: grant permissions": Doors.grants,
    "REST: read the tenant": Doors.reads_the_tenant,
    "REST: list tenants": Doors.lists_tenants,
    "REST: create a tenant": Doors.creates_a_tenant,
    "REST: settings of brokers": Doors.reads_settings,
    "gRPC: look a topic up": Doors.looks_up_over_grpc,
    "gRPC: list topics": Doors.lists_topics_over_grpc,
    "gRPC: watch names by a pattern": Doors.watches_names_over_grpc,
    "gRPC: watch topics and their policies": Doors.watches_topics_over_grpc,
    "gRPC: create a topic": Doors.creates_a_topic_over_grpc,
    "gRPC: counters of the node": Doors.reads_counters_over_grpc,
    "command line: list topics": Doors.lists_topics_by_the_command_line,
}


def table(rows: dict[str, list[str]]) -> str:
    """Return the document's table."""
    head = f"| {' | '.join(['door', *ROLES])} |\n|{'---|' * (len(ROLES) + 1)}\n"
    return head + "\n".join(f"| {' | '.join([door, *cells])} |" for door, cells in rows.items())


def test_each_role_gets_at_each_door_what_the_document_says(secured: SecuredCluster) -> None:
    found: dict[str, list[str]] = {}
    for door, attempt in DOORS.items():
        found[door] = []
        for role in ROLES.values():
            try:
                attempt(Doors(secured, role))
            except Refused:
                found[door].append("refused")
            else:
                found[door].append("yes")
    section = DOCUMENT.read_text().partition(HEADING)[2].partition("\n## ")[0]

    assert table(found) in section, table(found)


def test_the_command_line_says_that_a_permission_is_missing(secured: SecuredCluster) -> None:
    def run(*arguments: str, role: str) -> subprocess.CompletedProcess[str]:
        return secured.command(
            *arguments, NEXTGEN_TOKEN=secured.token(role), NEXTGEN_DATA_DIR=str(secured.data_dir)
        )

    assert run("produce", TOPIC, "hi", role="writer").returncode == 0
    for done in (
        run("produce", TOPIC, "hi", role="reader"),
        run("topics", "create", "persistent://acme/orders/mine", role="writer"),
    ):
        assert done.returncode != 0, done
        assert "no permission" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_permission_of_a_topic_is_for_that_topic_only(secured: SecuredCluster) -> None:
    granted(secured, f"{REST_TOPIC}/permissions/one", ["produce", "consume"])
    stock = client(secured.pulsar_at("discovery"), secured.token("one"))
    try:
        stock.subscribe(TOPIC, "one")
        stock.create_producer(TOPIC).send(b"hi")
        for refused in ("persistent://acme/orders/else", "persistent://acme/other/paid"):
            with pytest.raises(pulsar.AuthorizationError):
                stock.create_producer(refused)
        with pytest.raises(pulsar.LookupError):
            stock.subscribe(re.compile(f"persistent://{NAMESPACE}/pa.*"), "one-pattern")
    finally:
        stock.close()


def test_in_prefix_mode_a_subscription_begins_with_its_role(secured: SecuredCluster) -> None:
    keeper = secured.token("keeper")
    mode = "/admin/v2/namespaces/acme/other/subscriptionAuthMode"
    granted(secured, "/admin/v2/namespaces/acme/other/permissions/prefixed", ["consume", "produce"])
    stock = client(secured.pulsar_at("discovery"), secured.token("prefixed"))
    try:
        assert secured.http(mode, keeper, "POST", "Prefix")[0] == 204
        stock.subscribe("persistent://acme/other/mine", "prefixed-sub")
        with pytest.raises(pulsar.AuthorizationError):
            stock.subscribe("persistent://acme/other/mine", "another")
    finally:
        stock.close()


def test_what_no_role_can_have_is_refused_and_changes_nothing(secured: SecuredCluster) -> None:
    keeper = secured.token("keeper")
    before = secured.http(PERMISSIONS, keeper)
    for path, body in (
        (f"{PERMISSIONS}/bad%0Arole", ["produce"]),
        (f"{PERMISSIONS}/{'r' * 300}", ["produce"]),
        (f"{PERMISSIONS}/someone", ["fly"]),
        (f"{PERMISSIONS}/someone", "produce"),
    ):
        status, answer = secured.http(path, keeper, "POST", body)
        assert 400 <= status < 500, (path, status)
        assert answer["reason"]
    assert secured.http(PERMISSIONS, keeper) == before


def test_a_huge_subscription_name_is_refused_and_the_connection_stays(
    secured: SecuredCluster,
) -> None:
    stock = client(secured.pulsar_at("discovery"), secured.token("reader"))
    try:
        with pytest.raises(pulsar.PulsarException):
            stock.subscribe(TOPIC, "s" * 100_000)
        stock.subscribe(TOPIC, "reader-after")
    finally:
        stock.close()


def test_a_watch_over_grpc_ends_when_its_permission_is_taken_back(secured: SecuredCluster) -> None:
    operator = secured.token(OPERATOR_ROLE)
    granted(secured, f"{PERMISSIONS}/watcher", ["consume"])
    endpoint = secured.cluster.plan.discovery_endpoints[0]
    request = pb.WatchRequest(pattern=f"{NAMESPACE}/.*")
    with grpc.insecure_channel(endpoint) as channel:
        watch = channel.unary_stream(
            "/nextgen.v1.DiscoveryService/WatchTopics",
            pb.WatchRequest.SerializeToString,
            pb.WatchUpdate.FromString,
        )
        metadata = (("authorization", f"Bearer {secured.token('watcher')}"),)
        updates = watch(request, metadata=metadata, timeout=60)
        assert not next(updates).HasField("error")

        assert secured.http(f"{PERMISSIONS}/watcher", operator, "DELETE")[0] == 204

        *_, last = updates
        assert last.error.reason == "FORBIDDEN"
        assert "taken back" in last.error.message
        refused = watch(request, metadata=metadata, timeout=20)
        with pytest.raises(grpc.RpcError) as error:
            next(refused)
        assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_policies_of_a_topic_are_shown_to_admins_only_over_grpc(secured: SecuredCluster) -> None:
    granted(secured, f"{REST_TOPIC}/permissions/somebody", ["produce"])
    for role, sees in (("reader", False), ("keeper", True), (OPERATOR_ROLE, True)):
        doors = Doors(secured, role)
        one = doors.grpc("GetTopic", pb.GetObjectRequest(name=TOPIC), pb.GetObjectResponse)
        listing = pb.ListObjectsRequest(parent=NAMESPACE)
        many = doors.grpc("ListTopics", listing, pb.ListObjectsResponse)
        (listed,) = [each.topic for each in many.items if each.name == TOPIC]
        for topic in (one.item.topic, listed):
            assert topic.name == TOPIC
            assert any(each.role == "somebody" for each in topic.policies.permissions) is sees


def test_a_broker_tells_whether_it_serves_what_may_be_looked_up(secured: SecuredCluster) -> None:
    endpoint = secured.cluster.plan.of_kind("broker")[0].grpc
    with grpc.insecure_channel(endpoint) as channel:
        serves = channel.unary_unary(
            "/nextgen.v1.BrokerService/Serves",
            ServesRequest.SerializeToString,
            ServesResponse.FromString,
        )

        def ask(role: str) -> Any:
            metadata = (("authorization", f"Bearer {secured.token(role)}"),)
            return serves(ServesRequest(topics=[TOPIC]), metadata=metadata, timeout=20)

        assert [each.topic for each in ask("reader").answers] == [TOPIC]
        with pytest.raises(grpc.RpcError) as error:
            ask("nobody")
        assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_a_revoked_role_is_disconnected_and_refused_and_others_are_not(
    secured: SecuredCluster,
) -> None:
    """Nothing of the revoked role arrives, and nothing arrives at it, once that is answered."""
    operator = secured.token(OPERATOR_ROLE)
    granted(secured, f"{PERMISSIONS}/leaver", ["produce", "consume"])
    granted(secured, f"{PERMISSIONS}/stayer", ["produce", "consume"])
    at = secured.pulsar_at("discovery")
    topic = "persistent://acme/orders/revoked"
    leaver, other_leaver, stayer = (
        client(at, secured.token(role), timeout_s=5) for role in ("leaver", "leaver", "stayer")
    )
    try:
        sending = leaver.create_producer(topic, send_timeout_millis=SEND_MS)
        reading = other_leaver.subscribe(topic, "leaver")
        stays, kept = stayer.create_producer(topic), stayer.subscribe(topic, "stayer")
        sending.send(b"before")
        for consumer in (reading, kept):
            message = consumer.receive(RECEIVE_MS)
            assert message.data() == b"before"
            consumer.acknowledge(message)

        assert secured.http(f"{PERMISSIONS}/leaver", operator, "DELETE")[0] == 204

        stays.send(b"after")
        sent: Future[pulsar.Result] = Future()
        sending.send_async(b"too late", lambda result, _: sent.set_result(result))
        assert kept.receive(RECEIVE_MS).data() == b"after"
        with pytest.raises(pulsar.Timeout):
            kept.receive(SILENCE_MS)
        with pytest.raises((pulsar.Timeout, pulsar.AlreadyClosed)):
            reading.receive(SILENCE_MS)
        for attempt in (
            lambda: leaver.create_producer(topic),
            lambda: other_leaver.subscribe(topic, "another"),
        ):
            with pytest.raises(pulsar.AuthorizationError):
                attempt()
        assert sent.result(RECEIVE_MS / 1000) is not pulsar.Result.Ok
        assert kept.is_connected()
        assert stays.is_connected()
        log = secured.cluster.cluster.log_path("broker-1").read_text()
        assert log.count("a permission in use was taken back") >= 2
    finally:
        for each in (leaver, other_leaver, stayer):
            each.close()
