import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Runs Kafka's command-line tools one after the other, as if each had a process of its own. Each line of standard input is
 * a call: {"main", "arguments", "stdin", "seconds", "stays"}. Each line of standard output answers one: {"text", "exit"}, which is
 * all it printed, on both streams, and its exit code, or -1 for a tool that did not end in its time. A tool that stays works
 * in threads of its own when its main method has returned: it has all its time.
 */
public class RunTools {
    /** A tool's own output, hooks and end; the threads that it starts inherit them. */
    private static final class Run {
        final ByteArrayOutputStream printed = new ByteArrayOutputStream();
        final ConcurrentLinkedDeque<Runnable> hooks = new ConcurrentLinkedDeque<>();
        final CountDownLatch ended = new CountDownLatch(1);
        volatile int status = 0;
    }

    private static final InheritableThreadLocal<Run> current = new InheritableThreadLocal<>();

    public static void main(String[] none) throws Exception {
        System.setProperty("log4j2.statusLoggerLevel", "OFF");
        LoggerFactory.getLogger(RunTools.class); // says now, not in the midst of a tool, that nobody listens to it
        ObjectMapper json = new ObjectMapper();
        PrintStream answer = System.out;
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // Scala's println keeps the stream it finds first: so there is one for all tools, and what is behind it changes.
        System.setOut(new PrintStream(new OutputStream() {
            @Override
            public void write(int one) {
                current.get().printed.write(one);
            }

            @Override
            public void write(byte[] bytes, int from, int count) {
                current.get().printed.write(bytes, from, count);
            }
        }, true, StandardCharsets.UTF_8));
        System.setErr(System.out);
        Exit.setShutdownHookAdder((name, hook) -> current.get().hooks.push(hook));
        Exit.setExitProcedure((status, message) -> exit(status));
        exitOfZooKeeper();
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            Run run = new Run();
            current.set(run);
            run(json.readTree(line), run);
            String text = run.printed.toString(StandardCharsets.UTF_8);
            answer.println(json.writeValueAsString(json.createObjectNode().put("text", text).put("exit", run.status)));
            answer.flush();
        }
        Runtime.getRuntime().halt(0); // whatever threads the tools left behind
    }

    private static void exit(int status) {
        current.get().status = status;
        current.get().ended.countDown();
        // Whoever exits does not come back; an exception would be caught, and printed, by the tool.
        while (true) {
            LockSupport.park();
        }
    }

    /** ZooKeeper's shell ends in its own way; Kafka 4 comes without it. */
    private static void exitOfZooKeeper() throws ReflectiveOperationException {
        try {
            Consumer<Integer> exit = RunTools::exit;
            Class<?> services = Class.forName("org.apache.zookeeper.util.ServiceUtils");
            services.getMethod("setSystemExitProcedure", Consumer.class).invoke(null, exit);
        } catch (ClassNotFoundException none) {
            // a Kafka without ZooKeeper
        }
    }

    private static void run(JsonNode step, Run run) throws Exception {
        System.setIn(new ByteArrayInputStream(step.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        Thread tool = new Thread(() -> call(step, run), "tool");
        tool.setDaemon(true);
        tool.start();
        if (!run.ended.await(step.get("seconds").asLong(), TimeUnit.SECONDS)) {
            run.status = -1;
            System.out.println("did not end in " + step.get("seconds") + " s");
            for (StackTraceElement frame : tool.getStackTrace()) {
                System.out.println("\tat " + frame);
            }
            return;
        }
        if (step.get("stays").asBoolean()) {
            TimeUnit.SECONDS.sleep(step.get("seconds").asLong());
        }
        while (!run.hooks.isEmpty()) {
            run.hooks.pop().run();
        }
    }

    private static void call(JsonNode step, Run run) {
        String[] arguments = new String[step.get("arguments").size()];
        for (int index = 0; index < arguments.length; index++) {
            arguments[index] = step.get("arguments").get(index).asText();
        }
        try {
            Class.forName(step.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            run.status = 1;
            thrown.getCause().printStackTrace();
        } catch (ReflectiveOperationException wrong) {
            run.status = 1;
            wrong.printStackTrace();
        }
        run.ended.countDown();
    }
}
