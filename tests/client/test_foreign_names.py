"""What users of other Kafka clients write: it works, or the answer has the right name in it."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from shoal import (
    Admin,
    AsyncConsumer,
    Consumer,
    ConsumerConfig,
    OffsetAndMetadata,
    Producer,
    ProducerConfig,
    TopicPartition,
)
from shoal.client import foreign_names, serializers
from shoal.errors import ConfigError
from tests.client.conftest import poll_until, take

NOBODY = "127.0.0.1:9"
HERE = "tests.client.test_foreign_names"


class Ear:
    """An interceptor, found by its path."""

    def on_consume(self, records):
        return records


class Decode:
    def __call__(self, data):
        return data.decode()


def shout(data):
    return data.upper()


def last(topic, key, count):
    return count - 1


# --- settings ---


@pytest.mark.parametrize("dot", [".", ":"])
def test_paths_in_properties_lead_to_objects(dot):
    config = ConsumerConfig.from_properties(
        {
            "interceptor.classes": f"{HERE}{dot}Ear, {HERE}{dot}Ear",
            "key.deserializer": f"{HERE}{dot}shout",
            "value.deserializer": f"{HERE}{dot}Decode",
            "partition.assignment.strategy": f"{HERE}{dot}Ear",
        }
    )
    assert [type(one) for one in config.interceptors] == [Ear, Ear]
    assert config.key_deserializer is shout
    assert config.value_deserializer is not None
    assert config.value_deserializer(b"x") == "x"
    producer = ProducerConfig.from_properties(
        {"partitioner.class": f"{HERE}{dot}last", "value.serializer": f"{HERE}{dot}shout"}
    )
    assert callable(producer.partitioner)
    assert producer.partitioner("t", None, 3) == 2
    assert producer.value_serializer is shout


def test_what_is_an_object_in_properties_stays_one():
    ear = Ear()
    config = ConsumerConfig.from_properties(
        {"interceptor.classes": [ear, f"{HERE}:Ear"], "value.deserializer": shout}
    )
    assert config.interceptors[0] is ear
    assert type(config.interceptors[1]) is Ear
    assert config.value_deserializer is shout
    assert ConsumerConfig.from_properties({"interceptor.classes": ""}).interceptors == ()


@pytest.mark.parametrize("java", sorted(foreign_names.JAVA_CLASSES))
def test_the_serializers_of_java_are_ours(java):
    is_reader = java.endswith("Deserializer")
    config = ConsumerConfig if is_reader else ProducerConfig
    setting = "value_deserializer" if is_reader else "value_serializer"
    made = config.from_properties({setting.replace("_", "."): java})
    assert getattr(made, setting) is getattr(serializers, foreign_names.JAVA_CLASSES[java])


def test_the_assignors_and_partitioner_of_java_are_ours(shoal_broker):
    java = "org.apache.kafka.clients."
    properties = {
        "bootstrap.servers": shoal_broker.bootstrap_servers,
        "group.id": "g",
        "partition.assignment.strategy": f"{java}consumer.CooperativeStickyAssignor, "
        f"{java}consumer.RangeAssignor",
    }
    shoal_broker.create_topic("t")
    with (
        Consumer.from_properties(properties) as one,
        Admin(bootstrap_servers=shoal_broker.bootstrap_servers) as admin,
    ):
        one.subscribe(["t"])
        poll_until(one, one.assignment)
        assert admin.describe_group("g").assignor == "cooperative-sticky"
    partitioner = f"{java}producer.RoundRobinPartitioner"
    config = ProducerConfig.from_properties({"partitioner.class": partitioner})
    assert config.partitioner == "round-robin"


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"value.deserializer": "com.example.Avro"}, "no Python module 'com.example'"),
        ({"value.deserializer": f"{HERE}:Nobody"}, f"'{HERE}' has no 'Nobody'"),
        ({"value.deserializer": f"{HERE}:NOBODY"}, "value_deserializer='127.0.0.1:9' must be call"),
        ({"interceptor.classes": "com.example.Audit"}, "interceptor.classes: 'com.example.Audit'"),
        ({"interceptor.classes": "Audit"}, "interceptors has 'Audit', which is not an object"),
        ({"interceptor.classes": f"{HERE}:shout"}, "which is not an object with on_consume"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_by_name(properties, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        ConsumerConfig.from_properties(properties)


@pytest.mark.parametrize(
    ("client", "setting", "ours"),
    [
        (Consumer, "partition_assignment_strategy", "assignors"),
        (Consumer, "interceptor_classes", "interceptors"),
        (Consumer, "sasl_plain_username", "sasl_username"),
        (Consumer, "consumer_timeout_ms", "the timeout of poll()"),
        (AsyncConsumer, "partition_assignment_strategy", "assignors"),
        (Producer, "partitioner_class", "partitioner"),
        (Admin, "sasl_plain_password", "sasl_password"),
    ],
)
def test_a_setting_by_another_clients_name_is_answered_with_ours(client, setting, ours):
    with pytest.raises(ConfigError, match=re.escape(f"{setting!r}; here it is {ours}")):
        client(bootstrap_servers=NOBODY, **{setting: 1})


def test_a_setting_this_client_does_not_have_is_not_promised():
    with pytest.raises(ConfigError) as caught:
        Producer(bootstrap_servers=NOBODY, partition_assignment_strategy=[])  # type: ignore[call-arg]  # on purpose
    assert "assignors" not in str(caught.value)


# --- methods and arguments ---


@pytest.fixture(scope="module")
def clients():
    with (
        Consumer(bootstrap_servers=NOBODY, group_id="g") as consumer,
        Producer(bootstrap_servers=NOBODY) as producer,
        Admin(bootstrap_servers=NOBODY) as admin,
    ):
        yield {"Consumer": consumer, "Producer": producer, "Admin": admin}


@pytest.mark.parametrize(
    ("owner", "name", "ours"),
    [
        ("Consumer", "commitSync", "commit_sync()"),
        ("Consumer", "seekToBeginning", "seek_to_beginning()"),
        ("Consumer", "groupMetadata", "group_metadata()"),
        ("Consumer", "commit", "commit_sync() or commit_async()"),
        ("Consumer", "consume", "poll(timeout, max_records=...)"),
        ("Producer", "produce", "send()"),
        ("Producer", "partitionsFor", "partitions_for()"),
        ("Admin", "createTopics", "create_topic()"),
        ("Admin", "listOffsets", "list_offsets()"),
    ],
)
def test_a_method_by_another_clients_name_is_answered_with_ours(clients, owner, name, ours):
    with pytest.raises(
        AttributeError, match=re.escape(f"{owner} has no {name}; here it is {ours}")
    ):
        getattr(clients[owner], name)
    assert not hasattr(clients[owner], name)


def test_what_is_promised_is_there():
    for owner in (Consumer, AsyncConsumer, Producer, Admin):
        for name, ours in foreign_names._METHODS[owner.__name__].items():
            assert not hasattr(owner, name)
            for method in re.findall(r"(?<![\w.)])([a-z_]+)\(", ours):
                assert hasattr(owner, method), f"{owner.__name__}.{name}: {ours}"
    settings = {*ConsumerConfig.__dataclass_fields__, *ProducerConfig.__dataclass_fields__}
    for ours in foreign_names._SETTINGS.values():
        assert not ours.isidentifier() or ours in settings
    for java in foreign_names.JAVA_CLASSES.values():
        assert hasattr(serializers, java)


def test_other_names_fail_as_they_always_do(clients):
    consumer = clients["Consumer"]
    with pytest.raises(AttributeError, match="'Consumer' object has no attribute 'polll'"):
        consumer.polll()

    class Odd(Consumer):
        @property
        def broken(self):
            config: Any = self.config
            return config.no_such_field

    with (
        Odd(bootstrap_servers=NOBODY) as odd,
        pytest.raises(AttributeError, match="has no attribute 'no_such_field'"),
    ):
        _ = odd.broken
    assert "__getattr__" not in inspect.getsource(Consumer)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda c: c.poll(timeout_ms=1000),
            "poll(): unknown argument 'timeout_ms'; here it is tim",
        ),
        (lambda c: c.poll(timeoutMs=1000), "here it is timeout, in seconds"),
        (lambda c: c.poll(num_messages=5), "here it is max_records"),
        (lambda c: c.close(timeout_ms=1), "close(): unknown argument 'timeout_ms'; here it is"),
        (lambda c: c.subscribe(["t"], on_assign=print), "'on_assign'; here it is listener"),
        (lambda c: c.assignment(timeout_ms=1), "unexpected keyword argument 'timeout_ms'"),
        (lambda c: c.poll(tiemout=1), "unexpected keyword argument 'tiemout'"),
    ],
)
def test_an_argument_by_another_clients_name_is_answered_with_ours(clients, call, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        call(clients["Consumer"])


# --- what Java takes ---


def test_partitions_may_come_one_by_one_or_in_collections(producer, consumer, new_topic):
    topic = new_topic(2)
    first, second = both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for tp in both:
        producer.send(topic, b"v", partition=tp.partition).result(10)
    one = consumer()
    one.assign(both)
    for given in ([both], [set(both)], [tuple(both)], [(first,), [second]], both):
        one.pause(*given)
        assert one.paused() == set(both)
        one.resume(*given)
        assert one.paused() == set()
        one.seek_to_end(*given)
        assert [one.position(tp) for tp in both] == [1, 1]
        one.seek_to_beginning(*given)
        assert [one.position(tp) for tp in both] == [0, 0]
        assert one.committed(*given) == {first: None, second: None}
    one.pause([])
    assert one.paused() == set()
    one.seek_to_end([])  # as in Java: all
    assert [one.position(tp) for tp in both] == [1, 1]


def test_a_seek_goes_to_what_was_committed(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    for n in range(3):
        producer.send(topic, str(n)).result(10)
    one = consumer()
    one.assign([tp])
    take(one, 2)
    one.commit_sync()
    take(one, 1)
    one.seek(tp, one.committed(tp)[tp])
    assert [record.value for record in take(one, 1)] == [b"2"]
    one.seek(tp, OffsetAndMetadata(1, "why"))
    assert [record.value for record in take(one, 1)] == [b"1"]
