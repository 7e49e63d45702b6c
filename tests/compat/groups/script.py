"""What the tools are asked about groups, one after the other, of one broker. Each step stands on those before it.

`orders` has 3 partitions of 10 records each, a second apart since 2020-09-13T12:26:40Z, `line` one of 10. The group
`at-work` has two members all the while, one of them static, and `at-work-anew` one that speaks the newer protocol.
"""

from __future__ import annotations

from compat.tools.tool_runs import Step

_GROUPS = "kafka-consumer-groups"
_RESET = f"{_GROUPS} --reset-offsets --group shop"
_CONSUME = "kafka-console-consumer --timeout-ms 20000"

FILES = {
    "offsets.csv": '"orders",0,3\n"orders",2,5\n',
    "offsets-of-groups.csv": '"shop","orders",0,4\n"store","orders",1,6\n',
}

CONSUMING = (
    Step("consume in a group", f"{_CONSUME} --topic orders --group shop --from-beginning --max-messages 30"),
    Step("consume what is left", "kafka-console-consumer --timeout-ms 3000 --topic orders --group shop"),
    Step("consume by another group", f"{_CONSUME} --topic line --group store --from-beginning --max-messages 4"),
    Step("go on in a group", f"{_CONSUME} --topic line --group store --max-messages 4"),
    Step(
        "consume without automatic commits",
        f"{_CONSUME} --topic line --group careless --from-beginning --max-messages 4"
        " --command-property enable.auto.commit=false",
    ),
    Step("measure a consumer", "kafka-consumer-perf-test --topic orders --group measured --num-records 30"),
    Step(
        "consume what can be verified",
        "kafka-verifiable-consumer --topic line --group-id verified --max-messages 10",
    ),
    Step(
        "consume a static member's, verified",
        "kafka-verifiable-consumer --topic line --group-id verified-static --group-instance-id first --max-messages 10"
        " --session-timeout 300000"
        " --assignment-strategy org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    ),
)

SEEING = (
    Step("list groups", f"{_GROUPS} --list"),
    Step("list groups with states", f"{_GROUPS} --list --state"),
    Step("list groups with types", f"{_GROUPS} --list --type"),
    Step("list groups at work", f"{_GROUPS} --list --state stable"),
    Step("list groups in two states", f"{_GROUPS} --list --state stable,empty"),
    Step("list groups of a type", f"{_GROUPS} --list --type classic"),
    Step("describe a group at rest", f"{_GROUPS} --describe --group shop"),
    Step("describe a group at work", f"{_GROUPS} --describe --group at-work"),
    Step("describe offsets in detail", f"{_GROUPS} --describe --group at-work --offsets --verbose"),
    Step("describe members", f"{_GROUPS} --describe --group at-work --members"),
    Step("describe members in detail", f"{_GROUPS} --describe --group at-work --members --verbose"),
    Step("describe members at rest", f"{_GROUPS} --describe --group shop --members"),
    Step("describe a state", f"{_GROUPS} --describe --group at-work --state"),
    Step("describe a state at rest", f"{_GROUPS} --describe --group shop --state"),
    Step("describe states of two", f"{_GROUPS} --describe --group shop --group at-work --state"),
    Step("describe all groups", f"{_GROUPS} --describe --all-groups"),
    Step("describe a group that is not there", f"{_GROUPS} --describe --group nowhere"),
    Step("describe members of no group", f"{_GROUPS} --describe --group nowhere --members"),
    Step("describe the state of no group", f"{_GROUPS} --describe --group nowhere --state"),
)

RESETTING = (
    Step("reset, and only look", f"{_RESET} --topic orders --to-earliest --dry-run"),
    Step("see that nothing was reset", f"{_GROUPS} --describe --group shop"),
    Step("reset to the earliest", f"{_RESET} --topic orders --to-earliest --execute"),
    Step("see what was reset", f"{_GROUPS} --describe --group shop"),
    Step("reset to the latest", f"{_RESET} --all-topics --to-latest --execute"),
    Step("reset to an offset", f"{_RESET} --topic orders:0,1 --to-offset 7 --execute"),
    Step("reset to an offset beyond the end", f"{_RESET} --topic orders:2 --to-offset 70 --execute"),
    Step("reset forward", f"{_RESET} --topic orders:0 --shift-by 2 --execute"),
    Step("reset back", f"{_RESET} --topic orders --shift-by -5 --execute"),
    Step("reset back too far", f"{_RESET} --topic orders --shift-by -50 --execute"),
    Step("reset by a long time", f"{_RESET} --topic orders --by-duration P20000D --execute"),
    Step("reset by a short time", f"{_RESET} --topic orders --by-duration PT1M --execute"),
    Step("reset to a time", f"{_RESET} --topic orders --to-datetime 2020-09-13T12:26:44.500+00:00 --execute"),
    Step("reset to where it is", f"{_RESET} --topic orders --to-current --execute"),
    Step("export where it is", f"{_RESET} --topic orders --to-current --export --dry-run"),
    Step("reset from a file", f"{_RESET} --from-file PLACE/files/offsets.csv --execute"),
    Step("see what the file reset", f"{_GROUPS} --describe --group shop"),
    Step(
        "reset groups from a file",
        f"{_RESET} --group store --from-file PLACE/files/offsets-of-groups.csv --execute",
    ),
    Step("export two groups", f"{_RESET} --group store --all-topics --to-current --export --dry-run"),
    Step("reset a topic that is not there", f"{_RESET} --topic nowhere --to-earliest --execute"),
    Step(
        "reset a group that is not there",
        f"{_GROUPS} --reset-offsets --group fresh --topic orders --to-offset 2 --execute",
    ),
    Step(
        "reset a group at work",
        f"{_GROUPS} --reset-offsets --group at-work --topic orders --to-earliest --execute",
    ),
    Step("go on from there", f"{_CONSUME} --topic orders --group fresh --max-messages 24"),
    Step("see all groups then", f"{_GROUPS} --describe --all-groups --offsets"),
)

DELETING = (
    Step("delete offsets", f"{_GROUPS} --delete-offsets --group shop --topic orders:0"),
    Step("delete offsets again", f"{_GROUPS} --delete-offsets --group shop --topic orders:0,1"),
    Step("delete offsets of two topics", f"{_GROUPS} --delete-offsets --group measured --topic orders:0 --topic line"),
    Step("delete offsets of no topic", f"{_GROUPS} --delete-offsets --group shop --topic nowhere"),
    Step("delete offsets of no group", f"{_GROUPS} --delete-offsets --group nowhere --topic orders"),
    Step("delete offsets at work", f"{_GROUPS} --delete-offsets --group at-work --topic orders"),
    Step("see what is left", f"{_GROUPS} --describe --group shop"),
    Step("delete a group", f"{_GROUPS} --delete --group shop"),
    Step("delete a group again", f"{_GROUPS} --delete --group shop"),
    Step("delete a group at work", f"{_GROUPS} --delete --group at-work"),
    Step("delete two groups", f"{_GROUPS} --delete --group fresh --group nowhere"),
    Step("list what is left", f"{_GROUPS} --list"),
)

# For tools that know the newer protocol, beside a broker that serves it.
ANEW = (
    Step("list groups of the newer type", f"{_GROUPS} --list --type consumer"),
    Step("list the newer groups at work", f"{_GROUPS} --list --type consumer --state stable"),
    Step("describe a newer group", f"{_GROUPS} --describe --group at-work-anew"),
    Step("describe a newer group's members", f"{_GROUPS} --describe --group at-work-anew --members"),
    Step(
        "describe a newer group's members in detail", f"{_GROUPS} --describe --group at-work-anew --members --verbose"
    ),
    Step("describe a newer group's state", f"{_GROUPS} --describe --group at-work-anew --state"),
    Step(
        "reset a newer group", f"{_GROUPS} --reset-offsets --group at-work-anew --topic orders --to-earliest --execute"
    ),
    Step("delete a newer group", f"{_GROUPS} --delete --group at-work-anew"),
)

CONSUMING_ANEW = (
    Step(
        "consume in a newer group",
        f"{_CONSUME} --topic orders --group anew --from-beginning --max-messages 30"
        " --command-property group.protocol=consumer",
    ),
    Step(
        "verified, in a newer group",
        "kafka-verifiable-consumer --topic line --group-id verified-anew --group-protocol consumer --max-messages 10",
    ),
    Step("see where the newer group is", f"{_GROUPS} --describe --group anew"),
    Step("reset the newer group", f"{_GROUPS} --reset-offsets --group anew --topic orders --to-offset 2 --execute"),
    Step("delete offsets of the newer group", f"{_GROUPS} --delete-offsets --group anew --topic orders:1"),
    Step("see where it is now", f"{_GROUPS} --describe --group anew --offsets"),
    Step("delete the newer group", f"{_GROUPS} --delete --group anew"),
)

# What tools of Kafka 4 can, or say at once.
ALL_TYPES = (
    Step("groups of all types", "kafka-groups --list"),
    Step("groups of a type", "kafka-groups --list --group-type consumer"),
    Step("groups of consumers", "kafka-groups --list --consumer"),
    Step("groups of share consumers", "kafka-groups --list --share"),
    Step("reset a partition that is not there", f"{_RESET} --topic orders:9 --to-earliest --execute"),
    Step("describe the state in detail", f"{_GROUPS} --describe --group at-work --state --verbose"),
    Step("describe the newer state in detail", f"{_GROUPS} --describe --group at-work-anew --state --verbose"),
)

OLDER = (*CONSUMING, *SEEING, *RESETTING, *DELETING)
EVERYTHING = (*CONSUMING, *SEEING, *ALL_TYPES, *RESETTING, *ANEW, *CONSUMING_ANEW, *DELETING)
