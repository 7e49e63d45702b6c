import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Groups of real consumers. Arguments: the broker's address, and the protocols to use: range, cooperative, consumer. */
public class Groups {
    private final GroupsUse use;

    Groups(GroupsUse use) {
        this.use = use;
    }

    public static void main(String[] arguments) {
        List<String> protocols = List.of(Arrays.copyOfRange(arguments, 1, arguments.length));
        try (GroupsUse use = new GroupsUse(arguments[0])) {
            run(use, protocols);
        }
    }

    static void run(GroupsUse use, List<String> protocols) {
        Groups groups = new Groups(use);
        GroupsAdmin admin = new GroupsAdmin(use);
        for (String protocol : protocols) {
            GroupsUse.step(protocol + ": a group grows and shrinks", () -> groups.growAndShrink(protocol));
            GroupsUse.step(protocol + ": partitions are added", () -> groups.addPartitions(protocol));
            GroupsUse.step(protocol + ": a pattern meets a new topic", () -> groups.subscribeByPattern(protocol));
            GroupsUse.step(protocol + ": static members", () -> groups.staticMembers(protocol));
            if (protocol.equals("cooperative")) {
                continue; // to the broker the rest is as with range
            }
            GroupsUse.step(protocol + ": a group is described", () -> admin.describe(protocol));
            GroupsUse.step(protocol + ": rights", () -> admin.rights(protocol));
            GroupsUse.step(protocol + ": members are removed", () -> admin.removeMembers(protocol));
            if (!GroupsUse.readsFaithfully(protocol)) {
                continue;
            }
            GroupsUse.step(protocol + ": offsets are committed", () -> groups.commit(protocol));
            GroupsUse.step(protocol + ": offsets are altered", () -> admin.alterOffsets(protocol));
            GroupsUse.step(protocol + ": groups are deleted", () -> admin.deleteGroups(protocol));
        }
        if (protocols.contains("consumer")) {
            GroupsUse.step("consumer: the broker assigns ranges", groups::assignRanges);
            GroupsUse.step("a group changes its protocol and back", groups::changeProtocol);
        }
    }

    private void growAndShrink(String protocol) throws Exception {
        String topic = "grow-" + protocol;
        use.create(topic, 6);
        use.produce(topic, 6, 10);
        GroupsRecords records = new GroupsRecords();
        GroupsMember one = new GroupsMember(use.settings(protocol, topic, "one"), topic, records);
        GroupsUse.untilOwned(List.of(one), 6);
        GroupsUse.untilRead(records, 60, protocol);
        GroupsMember two = new GroupsMember(use.settings(protocol, topic, "two"), topic, records);
        GroupsUse.untilOwned(List.of(one, two), 3, 3);
        use.produce(topic, 6, 10);
        GroupsUse.untilRead(records, 120, protocol);
        GroupsMember three = new GroupsMember(use.settings(protocol, topic, "three"), topic, records);
        GroupsUse.untilOwned(List.of(one, two, three), 2, 2, 2);
        if (protocol.equals("range")) {
            System.out.println("one " + one.ownedNames() + ", two " + two.ownedNames() + ", three " + three.ownedNames());
        }
        two.close();
        GroupsUse.untilOwned(List.of(one, three), 3, 3);
        use.produce(topic, 6, 10);
        GroupsUse.untilRead(records, 180, protocol);
        one.close();
        GroupsUse.untilOwned(List.of(three), 6);
        three.close();
        System.out.println("one: " + one.changes());
        System.out.println("two: " + two.changes());
        System.out.println("three: " + three.changes());
        if (GroupsUse.readsFaithfully(protocol)) {
            System.out.println("committed: " + use.committed(topic));
        }
    }

    private void addPartitions(String protocol) throws Exception {
        String topic = "more-" + protocol;
        use.create(topic, 1);
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember one = new GroupsMember(use.settings(protocol, topic, "one"), topic, records);
             GroupsMember two = new GroupsMember(use.settings(protocol, topic, "two"), topic, records)) {
            GroupsUse.untilOwned(List.of(one, two), 0, 1);
            use.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            GroupsUse.untilOwned(List.of(one, two), 2, 2);
            use.produce(topic, 4, 3);
            GroupsUse.untilRead(records, 12, protocol);
        }
    }

    private void subscribeByPattern(String protocol) throws Exception {
        String prefix = "pattern-" + protocol;
        use.create(prefix + "-1", 2);
        use.create("other-" + prefix, 2);
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember member = new GroupsMember(use.settings(protocol, prefix, "one"),
                (consumer, listener) -> consumer.subscribe(Pattern.compile(prefix + "-\\d"), listener), records)) {
            GroupsUse.untilOwned(List.of(member), 2);
            System.out.println(member.ownedNames());
            use.create(prefix + "-2", 1);
            use.create(prefix + "-three", 1);
            use.produce(prefix + "-2", 1, 5);
            GroupsUse.untilOwned(List.of(member), 3);
            GroupsUse.untilRead(records, 5, protocol);
            System.out.println(member.ownedNames());
            if (protocol.equals("consumer")) { // others go on committing for a topic that is gone, until they give up
                use.admin.deleteTopics(List.of(prefix + "-2")).all().get();
                GroupsUse.untilOwned(List.of(member), 2);
                System.out.println(member.ownedNames());
            }
        }
    }

    private void commit(String protocol) throws Exception {
        String topic = "commit-" + protocol;
        use.create(topic, 2);
        use.produce(topic, 2, 10);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        Map<String, Object> settings = use.settings(protocol, topic, "one");
        settings.put("enable.auto.commit", "false");
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember member = new GroupsMember(settings, topic, records)) {
            GroupsUse.until(() -> records.count() == 20);
            System.out.println("committed at first: " + member.ask(consumer -> consumer.committed(Set.of(first))).get(first));
            member.ask(consumer -> {
                consumer.commitSync(Map.of(first, new OffsetAndMetadata(4, Optional.of(0), "a note")));
                return null;
            });
            System.out.println("with a note: " + member.ask(consumer -> consumer.committed(Set.of(first))).get(first));
            List<String> answers = Collections.synchronizedList(new ArrayList<>());
            CountDownLatch answered = new CountDownLatch(3);
            member.ask(consumer -> {
                for (long offset : new long[] {5, 7, 6}) {
                    consumer.commitAsync(Map.of(second, new OffsetAndMetadata(offset)), (offsets, error) -> {
                        answers.add(offsets.get(second).offset() + " " + (error == null ? "done" : GroupsUse.name(error)));
                        answered.countDown();
                    });
                }
                return null;
            });
            System.out.println("all answered: " + answered.await(20, TimeUnit.SECONDS) + ", in order " + answers);
            System.out.println("the last counts: " + member.ask(consumer -> consumer.committed(Set.of(second))).get(second).offset());
            GroupsUse.refused("a note too long", () -> member.ask(consumer -> {
                consumer.commitSync(Map.of(first, new OffsetAndMetadata(4, "x".repeat(5000))));
                return null;
            }));
            GroupsUse.refused("below zero", () -> new OffsetAndMetadata(-1));
            try (KafkaConsumer<String, String> stranger = stranger(topic)) {
                GroupsUse.refused("by a stranger", () -> stranger.commitSync(Map.of(first, new OffsetAndMetadata(1))));
                System.out.println("read by a stranger: " + offsets(stranger.committed(Set.of(first, second))));
            }
            if (!protocol.equals("consumer")) { // whose members join again by themselves
                GroupsUse.refused("by a member that was removed", () -> member.ask(consumer -> {
                    use.admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions()).all().get();
                    consumer.commitSync(Map.of(first, new OffsetAndMetadata(1)));
                    return null;
                }));
            }
        }
        GroupsRecords rest = new GroupsRecords();
        try (GroupsMember member = new GroupsMember(settings, topic, rest)) {
            GroupsUse.until(() -> rest.count() == 10);
            System.out.println("goes on: " + rest);
            member.ask(consumer -> {
                consumer.commitSync();
                return null;
            });
        }
        System.out.println("where it was: " + use.committed(topic));
        try (KafkaConsumer<String, String> stranger = stranger(topic)) {
            GroupsUse.refused("by a stranger, without members", () -> stranger.commitSync(Map.of(first, new OffsetAndMetadata(1))));
            System.out.println("read by a stranger: " + offsets(stranger.committed(Set.of(first, second))));
        }
    }

    /** A consumer that names a group of which it is no member. */
    private KafkaConsumer<String, String> stranger(String group) {
        Map<String, Object> settings = use.settings("range", group, "stranger");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static Map<String, Long> offsets(Map<TopicPartition, OffsetAndMetadata> committed) {
        Map<String, Long> offsets = new TreeMap<>();
        committed.forEach((partition, each) -> offsets.put(partition.toString(), each == null ? null : each.offset()));
        return offsets;
    }

    private void staticMembers(String protocol) throws Exception {
        String topic = "static-" + protocol;
        use.create(topic, 4);
        GroupsRecords records = new GroupsRecords();
        GroupsMember one = new GroupsMember(use.settings(protocol, topic, "one", "first"), topic, records);
        try (GroupsMember two = new GroupsMember(use.settings(protocol, topic, "two", "second"), topic, records)) {
            GroupsUse.untilOwned(List.of(one, two), 2, 2);
            List<String> before = one.ownedNames();
            String undisturbed = two.changes();
            one.close();
            GroupsMember again = new GroupsMember(use.settings(protocol, topic, "again", "first"), topic, records);
            GroupsUse.untilOwned(List.of(again, two), 2, 2);
            System.out.println("the same partitions: " + again.ownedNames().equals(before));
            System.out.println("the other undisturbed: " + two.changes().equals(undisturbed));
            GroupsMember twin = new GroupsMember(use.settings(protocol, topic, "twin", "first"), topic, records);
            GroupsUse.until(() -> again.failure() != null || twin.failure() != null);
            System.out.println("of two with one name: older " + failure(again) + ", newer " + failure(twin));
            twin.close();
            again.close();
            var remove = new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("first")));
            GroupsUse.answer("removed", () -> use.admin.removeMembersFromConsumerGroup(topic, remove).all());
            GroupsUse.untilOwned(List.of(two), 4);
            System.out.println("alone: " + two.ownedNames());
        }
    }

    private static String failure(GroupsMember member) {
        return member.failure() == null ? "lives" : "ended by " + GroupsUse.name(member.failure());
    }

    /** By range, the first of two members has the odd partition of each topic; otherwise they would be even. */
    private void assignRanges() throws Exception {
        use.create("ranges-1", 3);
        use.create("ranges-2", 3);
        GroupsRecords records = new GroupsRecords();
        Pattern pattern = Pattern.compile("ranges-.");
        try (GroupsMember one = new GroupsMember(use.settings("consumer-range", "ranges", "one"),
                 (consumer, listener) -> consumer.subscribe(pattern, listener), records);
             GroupsMember two = new GroupsMember(use.settings("consumer-range", "ranges", "two"),
                 (consumer, listener) -> consumer.subscribe(pattern, listener), records)) {
            GroupsUse.untilOwned(List.of(one, two), 2, 4);
            System.out.println("assignor " + use.described("ranges").partitionAssignor());
        }
        Map<String, Object> settings = use.settings("consumer", "ranges", "odd");
        settings.put("group.remote.assignor", "none-such");
        try (GroupsMember odd = new GroupsMember(settings, "ranges-1", records)) {
            GroupsUse.until(() -> odd.failure() != null);
            System.out.println("an assignor that is not there: " + GroupsUse.name(odd.failure()));
        }
    }

    /** Two members are restarted with the other protocol, one after the other, and then back. */
    private void changeProtocol() throws Exception {
        use.create("change", 4);
        GroupsRecords records = new GroupsRecords();
        GroupsMember[] members = new GroupsMember[2];
        String[] names = {"one", "two"};
        int produced = 0;
        for (String protocol : List.of("range", "consumer", "cooperative")) {
            for (int index = 0; index < 2; index++) {
                if (members[index] != null) {
                    members[index].close();
                }
                members[index] = new GroupsMember(use.settings(protocol, "change", names[index]), "change", records);
                if (members[1] == null) {
                    continue;
                }
                GroupsUse.untilOwned(List.of(members), 2, 2);
                use.produce("change", 4, 5);
                produced += 20;
                GroupsUse.untilRead(records, produced, "range", "consumer");
                System.out.println(names[index] + " by " + protocol + ": " + use.described("change").type() + ", 2 and 2");
            }
        }
        for (GroupsMember member : members) {
            member.close();
        }
        if (GroupsUse.readsFaithfully("consumer")) {
            System.out.println("committed: " + use.committed("change"));
        }
    }
}
