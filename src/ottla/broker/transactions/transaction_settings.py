"""The transaction coordinator's settings, from the broker's config."""

from __future__ import annotations

from ottla.broker.configs.broker_config import BrokerConfig
from ottla.coordinator.transactions.settings import TransactionSettings


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config["transaction.max.timeout.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
        abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        remove_expired_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
        two_phase_commit=config["transaction.two.phase.commit.enable"],
    )
