"""A differential fuzzer of whole brokers: the same random dialogues with an Ottla broker and with Apache Kafka.

    cd tests && python -m differential --seconds 60 --seed 1 --peer 4.3.1

A dialogue is a list of steps in JSON (`dialogue`): requests with symbols such as `$topic:0` or `$pid:p0` in place of
what only a broker can know. `generate` makes dialogues from a seed. `player` plays one against both brokers, each with
its own `symbols`. `answers` turns what they answer into trees without what may differ, and `comparison` compares those.
`shrinking` makes a dialogue that shows a difference as short as it can be. `on_purpose` lists the differences that we
want, each with its reason. `run` plays many dialogues and sums up; `command` is the command line.
"""
