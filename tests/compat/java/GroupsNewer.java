import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;

/** All that `Groups` does, and what only clients since Kafka 4.1 can. */
public class GroupsNewer {
    private final GroupsUse use;

    private GroupsNewer(GroupsUse use) {
        this.use = use;
    }

    public static void main(String[] arguments) {
        try (GroupsUse use = new GroupsUse(arguments[0])) {
            GroupsNewer newer = new GroupsNewer(use);
            Groups.run(use, List.of(Arrays.copyOfRange(arguments, 1, arguments.length)));
            GroupsUse.step("newer: classic groups", newer::describeClassic);
            GroupsUse.step("newer: epochs of a group", newer::describeEpochs);
            GroupsUse.step("newer: the broker knows the pattern", newer::subscribeByPattern);
        }
    }

    private void describeClassic() throws Exception {
        use.create("classic", 2);
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember one = new GroupsMember(use.settings("range", "classic", "one"), "classic", records)) {
            GroupsUse.untilOwned(List.of(one), 2);
            ClassicGroupDescription group = use.admin.describeClassicGroups(List.of("classic")).all().get().get("classic");
            System.out.println(group.state() + ", protocol " + group.protocol() + ", data " + group.protocolData() + ", simple "
                + group.isSimpleConsumerGroup() + ", members " + group.members().size());
            System.out.println("listed: " + listed(new ListGroupsOptions()));
            System.out.println("consumers: " + listed(ListGroupsOptions.forConsumerGroups()));
            System.out.println("by type: " + listed(new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))));
            System.out.println("by another type: " + listed(new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE))));
            System.out.println("by state: " + listed(new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))));
            System.out.println("by another state: " + listed(new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))));
            System.out.println("by protocol: " + listed(new ListGroupsOptions().withProtocolTypes(Set.of("consumer"))));
            System.out.println("by another protocol: " + listed(new ListGroupsOptions().withProtocolTypes(Set.of("connect"))));
        }
        GroupsUse.answer("no such group", () -> use.admin.describeClassicGroups(List.of("nowhere")).all());
    }

    private Set<String> listed(ListGroupsOptions options) throws Exception {
        return use.admin.listGroups(options).all().get().stream().filter(each -> each.groupId().equals("classic"))
            .map(GroupsNewer::text).collect(Collectors.toCollection(TreeSet::new));
    }

    private static String text(GroupListing group) {
        return group.groupId() + " " + GroupsUse.orNone(group.type()) + " " + group.protocol() + " " + GroupsUse.orNone(group.groupState())
            + " simple " + group.isSimpleConsumerGroup();
    }

    private void describeEpochs() throws Exception {
        use.create("epochs", 2);
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember one = new GroupsMember(use.settings("consumer", "epochs", "one"), "epochs", records)) {
            GroupsUse.untilOwned(List.of(one), 2);
            GroupsUse.until(() -> use.described("epochs").groupState() == GroupState.STABLE);
            var group = use.described("epochs");
            var member = group.members().iterator().next();
            System.out.println("the group's known: " + group.groupEpoch().isPresent() + ", the member has it: "
                + member.memberEpoch().equals(group.targetAssignmentEpoch()) + ", upgraded " + GroupsUse.orNone(member.upgraded()));
        }
    }

    /** A pattern that the broker resolves, again no sooner than 10 s after the last time. */
    private void subscribeByPattern() throws Exception {
        use.create("known-1", 2);
        GroupsRecords records = new GroupsRecords();
        try (GroupsMember member = new GroupsMember(use.settings("consumer", "known", "one"),
                (consumer, listener) -> consumer.subscribe(new SubscriptionPattern("known-[0-9]"), listener), records)) {
            GroupsUse.untilOwned(List.of(member), 2);
            System.out.println(member.ownedNames());
            use.create("known-2", 1);
            use.create("known-three", 1);
            GroupsUse.untilOwned(List.of(member), 3);
            System.out.println(member.ownedNames());
        }
        try (GroupsMember odd = new GroupsMember(use.settings("consumer", "odd", "one"),
                (consumer, listener) -> consumer.subscribe(new SubscriptionPattern("odd-(["), listener), records)) {
            GroupsUse.until(() -> odd.failure() != null);
            System.out.println("no pattern: " + GroupsUse.name(odd.failure()));
        }
    }
}
