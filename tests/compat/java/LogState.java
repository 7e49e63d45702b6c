import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * Does to Kafka's own producer state and leader epochs what each line of its input says, and prints for each what came
 * of it and the state afterwards. Argument: a folder for snapshots and checkpoints, of which each `new` takes a part.
 */
public class LogState {
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);
    private static final long NONE = -1L;

    private final File home;
    private int made = 0;
    private ProducerStateManager states;
    private LeaderEpochFileCache epochs;

    LogState(File home) {
        this.home = home;
    }

    public static void main(String[] arguments) throws Exception {
        LogState oracle = new LogState(new File(arguments[0]));
        StringBuilder answers = new StringBuilder();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = oracle.answer(words);
            } catch (Exception refused) {
                answer = refused.getClass().getSimpleName();
            }
            answers.append(answer).append(" # ").append(oracle.state(words[0])).append('\n');
        }
        System.out.print(answers);
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "new":
                states = new ProducerStateManager(
                        PARTITION, folder(), 900_000, new ProducerStateManagerConfig(1_000_000, false), Time.SYSTEM);
                return "ok";
            case "data":
                return append(AppendOrigin.valueOf(words[1]), words[2].split(";"));
            case "marker":
                return end(AppendOrigin.valueOf(words[1]), words);
            case "watermark":
                states.onHighWatermarkUpdated(Long.parseLong(words[1]));
                return "ok";
            case "start":
                states.onLogStartOffsetIncremented(Long.parseLong(words[1]));
                return "ok";
            case "expire":
                states.removeExpiredProducers(Long.parseLong(words[1]));
                return "ok";
            case "snapshot":
                states.updateMapEndOffset(Long.parseLong(words[1]));
                return states.takeSnapshot(false).isPresent() ? "taken" : "none";
            case "reload":
                states.truncateAndReload(Long.parseLong(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
                return "ok";
            case "restart":
                states.truncateFullyAndStartAt(Long.parseLong(words[1]));
                return "ok";
            case "before":
                states.deleteSnapshotsBefore(Long.parseLong(words[1]));
                return "ok";
            case "mark":
                return states.removeAndMarkSnapshotForDeletion(Long.parseLong(words[1])).isPresent() ? "marked" : "none";
            case "strays":
                states.removeStraySnapshots(words.length < 2 ? List.of() : numbers(words[1]));
                return "ok";
            case "epochs-new":
                Object nobody = Proxy.newProxyInstance(
                        LogState.class.getClassLoader(), new Class<?>[] {Scheduler.class}, (object, method, args) -> null);
                File file = LeaderEpochCheckpointFile.newFile(folder());
                epochs = new LeaderEpochFileCache(
                        PARTITION, new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(1)), (Scheduler) nobody);
                return "ok";
            case "epochs-assign":
                epochs.assign(Integer.parseInt(words[1]), Long.parseLong(words[2]));
                return "ok";
            case "epochs-cut-end":
                epochs.truncateFromEndAsyncFlush(Long.parseLong(words[1]));
                return "ok";
            case "epochs-cut-start":
                epochs.truncateFromStartAsyncFlush(Long.parseLong(words[1]));
                return "ok";
            case "epochs-end-of":
                Map.Entry<Integer, Long> end = epochs.endOffsetFor(Integer.parseInt(words[1]), Long.parseLong(words[2]));
                return end.getKey() + " " + end.getValue();
            case "epochs-at":
                return "" + epochs.epochForOffset(Long.parseLong(words[1])).orElse(-1);
            case "epochs-around":
                int epoch = Integer.parseInt(words[1]);
                return epochs.previousEpoch(epoch).orElse(-1) + " " + epochs.nextEpoch(epoch).orElse(-1);
            default:
                throw new IllegalStateException(String.join(" ", words));
        }
    }

    private File folder() {
        File folder = new File(home, Integer.toString(made++));
        folder.mkdirs();
        return folder;
    }

    private static List<Long> numbers(String text) {
        return Arrays.stream(text.split(",")).map(Long::parseLong).collect(Collectors.toList());
    }

    /** Batches of one append, each: producer, epoch, sequence, records less one, base offset, timestamp, transactional. */
    private String append(AppendOrigin origin, String[] batches) {
        Map<Long, ProducerAppendInfo> changes = new LinkedHashMap<>();
        long next = 0;
        for (String batch : batches) {
            List<Long> fields = numbers(batch);
            long producer = fields.get(0);
            short epoch = fields.get(1).shortValue();
            int sequence = fields.get(2).intValue();
            int delta = fields.get(3).intValue();
            long offset = fields.get(4);
            int lastSequence = sequence == -1 ? -1 : DefaultRecordBatch.incrementSequence(sequence, delta);
            Optional<ProducerStateEntry> known = states.lastEntry(producer);
            if (origin == AppendOrigin.CLIENT && known.isPresent() && known.get().producerEpoch() == epoch) {
                for (BatchMetadata former : known.get().batchMetadata()) {
                    if (former.firstSeq() == sequence && former.lastSeq == lastSequence) {
                        return "duplicate " + former.firstOffset() + " " + former.lastOffset + " " + former.timestamp;
                    }
                }
            }
            changes.computeIfAbsent(producer, id -> states.prepareUpdate(id, origin)).appendDataBatch(
                    epoch, sequence, lastSequence, fields.get(5), new LogOffsetMetadata(offset), offset + delta,
                    fields.get(6) == 1);
            next = offset + delta + 1;
        }
        changes.values().forEach(states::update);
        states.updateMapEndOffset(next);
        return "ok";
    }

    /** Origin, producer, epoch, coordinator's epoch, offset, timestamp, whether it commits. */
    private String end(AppendOrigin origin, String[] words) {
        long producer = Long.parseLong(words[2]);
        long offset = Long.parseLong(words[5]);
        ControlRecordType type = words[7].equals("1") ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        ProducerAppendInfo change = states.prepareUpdate(producer, origin);
        Optional<CompletedTxn> ended = change.appendEndTxnMarker(
                new EndTransactionMarker(type, Integer.parseInt(words[4])),
                Short.parseShort(words[3]),
                offset,
                Long.parseLong(words[6]));
        states.update(change);
        String answer = "ok";
        if (ended.isPresent()) {
            CompletedTxn transaction = ended.get();
            if (transaction.isAborted) {
                answer = "aborted " + transaction.firstOffset + " " + transaction.lastOffset + " "
                        + states.lastStableOffset(transaction);
            }
            states.completeTxn(transaction);
        }
        states.updateMapEndOffset(offset + 1);
        return answer;
    }

    private String state(String step) {
        if (step.startsWith("epochs-")) {
            return epochs.latestEpoch().orElse(-1) + " " + epochs.epochEntries().stream()
                    .map(entry -> entry.epoch + ":" + entry.startOffset)
                    .collect(Collectors.joining(" "));
        }
        StringBuilder text = new StringBuilder();
        text.append(states.mapEndOffset());
        text.append(' ').append(states.firstUnstableOffset().map(found -> found.messageOffset).orElse(NONE));
        text.append(' ').append(states.firstUndecidedOffset().orElse(NONE));
        text.append(' ').append(states.isEmpty() ? 1 : 0);
        text.append(' ').append(states.hasLateTransaction(1_500_000) ? 1 : 0);
        text.append(' ').append(states.oldestSnapshotOffset().orElse(NONE));
        text.append(' ').append(states.latestSnapshotOffset().orElse(NONE));
        new TreeMap<>(states.activeProducers()).forEach((producer, entry) -> {
            text.append(" | ").append(producer).append(' ').append(entry.producerEpoch());
            text.append(' ').append(entry.coordinatorEpoch()).append(' ').append(entry.lastTimestamp());
            text.append(' ').append(entry.currentTxnFirstOffset().orElse(NONE));
            for (BatchMetadata batch : entry.batchMetadata()) {
                text.append(' ').append(batch.firstSeq()).append('-').append(batch.lastSeq);
                text.append('@').append(batch.firstOffset()).append('-').append(batch.lastOffset);
                text.append('@').append(batch.timestamp);
            }
        });
        return text.toString();
    }
}
