"""The transaction coordinator: the state machine of each transactional id, kept in `__transaction_state`."""
