"""A Kafka inside your test: embedded broker, pytest fixture, faults, virtual time, simulator."""
