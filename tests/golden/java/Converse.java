import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Has the Java clients say what they can say to a broker, for a proxy to listen to. Arguments: the broker's address, the
 * prefix of topic and group names, the group protocols to use; and, to talk of nothing but delegation tokens instead, the
 * name of a SASL user who is his own password. A step that the broker refuses is reported and passed
 * over: the refusal is a frame as well.
 */
public class Converse {
    private interface Step {
        void run() throws Exception;
    }

    private static String bootstrap;
    private static String topic;
    private static String group;

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        if (arguments.length > 3) {
            step("tokens", () -> tokens(arguments[3]));
            return;
        }
        topic = arguments[1] + ".topic";
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(config())) {
            step("create topics", () -> admin.createTopics(List.of(
                new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "-1")),
                new NewTopic(topic + ".gone", Map.of(0, List.of(1))))).all().get());
            step("describe topics", () -> admin.describeTopics(List.of(topic)).allTopicNames().get());
            step("list topics", () -> admin.listTopics().names().get());
            step("add partitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get());
            step("produce", () -> produce(Map.of("enable.idempotence", "false", "acks", "1")));
            step("produce with idempotence", () -> produce(Map.of("compression.type", "gzip")));
            for (String protocol : arguments[2].split(",")) {
                group = arguments[1] + ".group." + protocol;
                step("consume, " + protocol, () -> consume(admin, protocol));
            }
            step("transactions", () -> transactions(arguments[1]));
            step("transactions seen", () -> {
                admin.listTransactions().all().get();
                admin.describeTransactions(List.of(arguments[1] + ".transactions")).all().get();
                admin.describeProducers(List.of(partition)).all().get();
                admin.fenceProducers(List.of(arguments[1] + ".transactions")).all().get();
            });
            step("offsets", () -> admin.listOffsets(Map.of(
                partition, OffsetSpec.latest(),
                new TopicPartition(topic, 1), OffsetSpec.forTimestamp(1_700_000_000_000L),
                new TopicPartition(topic, 2), OffsetSpec.earliest())).all().get());
            step("max timestamp", () -> admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).all().get());
            step("delete records", () -> admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(1))).all().get());
            step("cluster", () -> {
                admin.describeCluster().nodes().get();
                admin.describeFeatures().featureMetadata().get();
                admin.describeLogDirs(List.of(1)).allDescriptions().get();
            });
            step("groups", () -> groups(admin, partition));
            step("configs", () -> configs(admin));
            TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, 1);
            step("replica directories", () -> admin.describeReplicaLogDirs(List.of(replica)).all().get());
            step("move a replica", () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get());
            step("config resources", () -> admin.listClientMetricsResources().all().get());
            FeatureUpdate feature = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE);
            step("features", () -> admin.updateFeatures(
                Map.of("group.version", feature), new UpdateFeaturesOptions().validateOnly(true)).all().get());
            step("elections", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all().get());
            step("reassignments", () -> {
                admin.alterPartitionReassignments(
                    Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get();
                admin.listPartitionReassignments(Set.of(partition)).reassignments().get();
                admin.listPartitionReassignments().reassignments().get();
            });
            acls(admin);
            quotas(admin);
            step("create token", () -> admin.createDelegationToken().delegationToken().get());
            step("describe tokens", () -> admin.describeDelegationToken().delegationTokens().get());
            step("renew token", () -> admin.renewDelegationToken(new byte[] {1, 2, 3}).expiryTimestamp().get());
            step("expire token", () -> admin.expireDelegationToken(new byte[] {1, 2, 3}).expiryTimestamp().get());
            step("delete topics", () -> admin.deleteTopics(List.of(topic + ".gone")).all().get());
        }
    }

    private static Properties config() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", "golden");
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("default.api.timeout.ms", "10000");
        config.put("request.timeout.ms", "8000");
        return config;
    }

    private static void step(String name, Step step) {
        try {
            step.run();
        } catch (Exception refused) {
            System.out.println(name + ": " + refused);
        }
    }

    private static ProducerRecord<byte[], byte[]> record(int number) {
        byte[] key = ("key-" + number).getBytes(StandardCharsets.UTF_8);
        byte[] value = ("value-" + number).getBytes(StandardCharsets.UTF_8);
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(topic, number % 2, 1_700_000_000_000L + number, key, value);
        record.headers().add("number", new byte[] {(byte) number});
        return record;
    }

    private static void produce(Map<String, String> settings) throws Exception {
        Properties config = config();
        config.putAll(settings);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            for (int number = 0; number < 4; number++) {
                producer.send(record(number)).get();
            }
        }
    }

    private static void consume(Admin admin, String protocol) throws Exception {
        Properties config = config();
        config.put("group.id", group);
        config.put("group.protocol", protocol);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "100");
        if (protocol.equals("classic")) {
            config.put("heartbeat.interval.ms", "200");
            config.put("session.timeout.ms", "6000");
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of(topic));
            int seen = 0;
            long deadline = System.currentTimeMillis() + 15_000;
            while (seen < 8 && System.currentTimeMillis() < deadline) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                seen += records.count();
            }
            consumer.commitSync();
            consumer.poll(Duration.ofMillis(500));
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.committed(Set.of(partition));
            consumer.offsetsForTimes(Map.of(partition, 1_700_000_000_001L));
            consumer.endOffsets(Set.of(partition));
            consumer.partitionsFor(topic);
            admin.describeConsumerGroups(List.of(group)).all().get();
            if (seen < 8) {
                throw new IllegalStateException("only " + seen + " records came");
            }
        }
    }

    private static void transactions(String prefix) throws Exception {
        Properties config = config();
        config.put("transactional.id", prefix + ".transactions");
        config.put("transaction.timeout.ms", "20000");
        Properties reading = config();
        reading.put("group.id", prefix + ".transactional-group");
        reading.put("isolation.level", "read_committed");
        reading.put("auto.offset.reset", "earliest");
        reading.put("fetch.max.wait.ms", "100");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
                KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(record(0)).get();
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(1, "noted")), consumer.groupMetadata());
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(record(2)).get();
            producer.abortTransaction();
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            for (int turn = 0; turn < 5; turn++) {
                consumer.poll(Duration.ofMillis(200));
            }
        }
    }

    private static void groups(Admin admin, TopicPartition partition) throws Exception {
        admin.listConsumerGroups().all().get();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(2, Optional.of(0), "moved"))).all().get();
        admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
        admin.deleteConsumerGroups(List.of(group)).all().get();
    }

    private static void tokens(String user) throws Exception {
        Properties config = config();
        config.put("security.protocol", "SASL_PLAINTEXT");
        config.put("sasl.mechanism", "PLAIN");
        config.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required username=\""
            + user + "\" password=\"" + user + "\";");
        try (Admin admin = Admin.create(config)) {
            byte[] code = admin.createDelegationToken().delegationToken().get().hmac();
            admin.describeDelegationToken().delegationTokens().get();
            admin.renewDelegationToken(code).expiryTimestamp().get();
            admin.expireDelegationToken(code).expiryTimestamp().get();
        }
    }

    private static void configs(Admin admin) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact,delete"), AlterConfigOp.OpType.SET);
        AlterConfigOp unset = new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE);
        Map<ConfigResource, Collection<AlterConfigOp>> changes = Map.of(resource, List.of(set, unset));
        admin.incrementalAlterConfigs(changes).all().get();
        admin.describeConfigs(List.of(resource)).all().get();
    }

    private static void acls(Admin admin) {
        ResourcePattern pattern = new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL);
        AccessControlEntry entry =
            new AccessControlEntry("User:golden", "*", AclOperation.READ, AclPermissionType.ALLOW);
        step("create ACLs", () -> admin.createAcls(List.of(new AclBinding(pattern, entry))).all().get());
        step("describe ACLs", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        AclBindingFilter here = new AclBindingFilter(pattern.toFilter(), AccessControlEntryFilter.ANY);
        step("describe an ACL", () -> admin.describeAcls(here).values().get());
        step("delete an ACL", () -> admin.deleteAcls(List.of(here)).all().get());
        step("delete ACLs", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
    }

    private static void quotas(Admin admin) {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "golden-limited"));
        ClientQuotaAlteration.Op limit = new ClientQuotaAlteration.Op("producer_byte_rate", 1e6);
        step("alter quotas", () ->
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(limit)))).all().get());
        step("describe quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        ScramCredentialInfo scram = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        step("alter SCRAM", () -> admin.alterUserScramCredentials(
            List.of(new UserScramCredentialUpsertion("golden", scram, "golden"))).all().get());
        step("describe SCRAM", () -> admin.describeUserScramCredentials().all().get());
    }
}
