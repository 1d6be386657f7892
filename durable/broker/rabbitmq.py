"""RabbitMQ in the place of Redis, through Dramatiq's own broker."""

from __future__ import annotations

from dramatiq.brokers.rabbitmq import RabbitmqBroker

from durable.broker.patient import Patient


class PatientRabbitmqBroker(Patient, RabbitmqBroker):
    """Dramatiq's RabbitMQ broker; RabbitMQ keeps messages by itself and returns those of a dead worker."""

    def backlog(self, queue: str) -> int:
        """Return how many messages wait in a queue."""
        self.declare_queue(queue, ensure=True)
        waiting, _, _ = self.get_queue_message_counts(queue)
        return int(waiting)
