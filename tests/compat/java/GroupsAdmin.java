import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListConsumerGroupsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ConsumerGroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/** What the admin client is told of groups, and may do to them. */
final class GroupsAdmin {
    private final GroupsUse use;

    GroupsAdmin(GroupsUse use) {
        this.use = use;
    }

    void describe(String protocol) throws Exception {
        String topic = "described-" + protocol;
        use.create(topic, 2);
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember one = new GroupsMember(use.settings(protocol, topic, "one"), topic, records)) {
            GroupsUse.untilOwned(List.of(one), 2);
            GroupsUse.until(() -> use.described(topic).state() == ConsumerGroupState.STABLE);
            print(use.described(topic));
            System.out.println("listed: " + listed(new ListConsumerGroupsOptions(), topic));
            for (ConsumerGroupState state : List.of(ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)) {
                System.out.println("listed when " + state + ": " + listed(new ListConsumerGroupsOptions().inStates(Set.of(state)), topic));
            }
            for (GroupType type : List.of(GroupType.CLASSIC, GroupType.CONSUMER)) {
                System.out.println("listed when " + type + ": " + listed(new ListConsumerGroupsOptions().withTypes(Set.of(type)), topic));
            }
            try (GroupsMember two = new GroupsMember(use.settings(protocol, topic, "two", "named"), topic, records)) {
                GroupsUse.untilOwned(List.of(one, two), 1, 1);
                GroupsUse.until(() -> use.described(topic).state() == ConsumerGroupState.STABLE);
                ConsumerGroupDescription description = use.described(topic);
                for (MemberDescription member : members(description)) {
                    System.out.println("  " + member.clientId() + ", instance " + GroupsUse.orNone(member.groupInstanceId())
                        + ", on " + member.host() + ", with " + member.assignment().topicPartitions().size());
                }
            }
            var remove = new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("named")));
            GroupsUse.answer("the one that does not come back is removed", () -> use.admin.removeMembersFromConsumerGroup(topic, remove).all());
            GroupsUse.untilOwned(List.of(one), 2);
        }
        GroupsUse.until(() -> use.described(topic).state() == ConsumerGroupState.EMPTY);
        print(use.described(topic));
        System.out.println("listed: " + listed(new ListConsumerGroupsOptions(), topic));
        GroupsUse.answer("no such group", () -> use.admin.describeConsumerGroups(List.of("nowhere")).all());
    }

    /** To the group that was described. */
    void rights(String protocol) throws Exception {
        String group = "described-" + protocol;
        var rights = new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true);
        System.out.println(new TreeSet<>(use.admin.describeConsumerGroups(List.of(group), rights).all().get().get(group).authorizedOperations()));
    }

    private static List<MemberDescription> members(ConsumerGroupDescription group) {
        return group.members().stream().sorted(Comparator.comparing(MemberDescription::clientId)).toList();
    }

    private static void print(ConsumerGroupDescription group) {
        System.out.println(group.groupId() + ": " + group.state() + ", " + group.type() + ", simple " + group.isSimpleConsumerGroup()
            + ", assignor '" + group.partitionAssignor() + "', on broker " + group.coordinator().id());
        for (MemberDescription member : members(group)) {
            System.out.println("  " + member.clientId() + ", instance " + GroupsUse.orNone(member.groupInstanceId()) + ", on "
                + member.host() + ", has an id: " + !member.consumerId().isEmpty() + ", with " + names(member.assignment().topicPartitions())
                + ", is to have " + GroupsUse.orNone(member.targetAssignment().map(each -> names(each.topicPartitions()))));
        }
    }

    private static Set<String> names(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).collect(Collectors.toCollection(TreeSet::new));
    }

    private String listed(ListConsumerGroupsOptions options, String group) throws Exception {
        for (ConsumerGroupListing each : use.admin.listConsumerGroups(options).all().get()) {
            if (each.groupId().equals(group)) {
                return "simple " + each.isSimpleConsumerGroup() + ", " + GroupsUse.orNone(each.state()) + ", " + GroupsUse.orNone(each.type());
            }
        }
        return "no";
    }

    void alterOffsets(String protocol) throws Exception {
        String topic = "altered-" + protocol;
        use.create(topic, 2);
        use.create("apart-" + topic, 1);
        use.produce(topic, 2, 5);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition apart = new TopicPartition("apart-" + topic, 0);
        TopicPartition gone = new TopicPartition("nowhere", 0);
        alter("of a group that is not there yet", topic, apart, 3);
        System.out.println("made by it: " + listed(new ListConsumerGroupsOptions(), topic));
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember one = new GroupsMember(use.settings(protocol, topic, "one"), topic, records)) {
            GroupsUse.until(() -> records.count() == 10);
            alter("of a group at work", topic, first, 1);
            delete("deleted at work, subscribed", topic, first);
            delete("deleted at work, not subscribed", topic, apart);
        }
        System.out.println("committed: " + use.committed(topic));
        alter("at rest", topic, first, 2);
        alter("of no topic", topic, gone, 2);
        alter("beyond the end", topic, first, 99);
        System.out.println("committed: " + use.committed(topic));
        System.out.println("of one partition: " + use.admin.listConsumerGroupOffsets(
            Map.of(topic, new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(first, gone)))).partitionsToOffsetAndMetadata(topic).get().size());
        System.out.println("of two groups: " + use.admin.listConsumerGroupOffsets(
            Map.of(topic, new ListConsumerGroupOffsetsSpec(), "nowhere", new ListConsumerGroupOffsetsSpec()))
            .partitionsToOffsetAndMetadata("nowhere").get());
        delete("deleted at rest", topic, first);
        delete("deleted again", topic, first);
        delete("deleted, of no topic", topic, gone);
        delete("deleted, of no group", "nowhere", first);
        System.out.println("committed: " + use.committed(topic));
    }

    private void alter(String what, String group, TopicPartition partition, long offset) {
        GroupsUse.answer(what, () ->
            use.admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(offset))).partitionResult(partition));
    }

    private void delete(String what, String group, TopicPartition partition) {
        GroupsUse.answer(what, () -> use.admin.deleteConsumerGroupOffsets(group, Set.of(partition)).partitionResult(partition));
    }

    void removeMembers(String protocol) throws Exception {
        String topic = "removed-" + protocol;
        use.create(topic, 2);
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember one = new GroupsMember(use.settings(protocol, topic, "one"), topic, records)) {
            GroupsUse.untilOwned(List.of(one), 2);
            MemberToRemove none = new MemberToRemove("nobody");
            var nobody = use.admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions(Set.of(none)));
            GroupsUse.answer("who is not there", () -> nobody.memberResult(none));
            GroupsUse.answer("all", () -> use.admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions()).all());
            if (!protocol.equals("consumer")) { // whose members come back, or end by it
                GroupsUse.until(() -> !use.described(topic).members().isEmpty());
                System.out.println("and is back");
            }
        }
        GroupsUse.answer("from no group", () -> use.admin.removeMembersFromConsumerGroup(
            "nowhere", new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("nobody")))).all());
    }

    void deleteGroups(String protocol) throws Exception {
        String topic = "deleted-" + protocol;
        use.create(topic, 1);
        use.produce(topic, 1, 3);
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember one = new GroupsMember(use.settings(protocol, topic, "one"), topic, records)) {
            GroupsUse.until(() -> records.count() == 3);
            GroupsUse.answer("at work", () -> use.admin.deleteConsumerGroups(List.of(topic)).all());
        }
        System.out.println("committed: " + use.committed(topic));
        var deleted = use.admin.deleteConsumerGroups(List.of(topic, "nowhere")).deletedGroups();
        GroupsUse.answer("at rest", () -> deleted.get(topic));
        GroupsUse.answer("that is not there", () -> deleted.get("nowhere"));
        GroupsUse.answer("again", () -> use.admin.deleteConsumerGroups(List.of(topic)).all());
        System.out.println("committed: " + use.committed(topic));
        System.out.println("listed: " + listed(new ListConsumerGroupsOptions(), topic));
        GroupsRecords anew = new GroupsRecords();
        try (GroupsMember one = new GroupsMember(use.settings(protocol, topic, "one"), topic, anew)) {
            GroupsUse.until(() -> anew.count() == 3);
            System.out.println("from the beginning again: " + anew.verdict());
        }
    }
}
