import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.lock.LockProvider;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.exception.HoodieLockException;
import org.apache.hudi.storage.StorageConfiguration;

/**
 * Takes a lock by one of Hudi's own providers on command: HudiLock FILE, one command a line on stdin. FILE is a Hudi properties
 * file, whose hoodie.write.lock.provider names the class.
 */
public class HudiLock {
    private static final int POLL_MS = 20;

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (InputStream file = Files.newInputStream(Path.of(args[0]))) {
            properties.load(file);
        }
        LockProvider<?> provider = null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 4);
            if (provider == null) {
                provider = open(properties);
            }
            if (words[0].equals("take")) {
                say("\"took\": " + take(provider, (long) (Double.parseDouble(words[1]) * 1000)));
            } else if (words[0].equals("release")) {
                provider.unlock();
                say("\"released\": true");
            } else if (words[0].equals("hammer")) {
                int rounds = Integer.parseInt(words[1]);
                say("\"overlaps\": " + hammer(provider, rounds, Integer.parseInt(words[2]), Path.of(words[3])));
            } else {
                say("\"ready\": true");
            }
        }
        System.exit(0);
    }

    static LockProvider<?> open(Properties properties) throws Exception {
        Class<?> type = Class.forName(properties.getProperty("hoodie.write.lock.provider"));
        Constructor<?> constructor = type.getConstructor(LockConfiguration.class, StorageConfiguration.class);
        return (LockProvider<?>) constructor.newInstance(new LockConfiguration(properties), new Hadoop());
    }

    /** Tries until it has the lock, as Hudi's LockManager does: when another has it, a provider says no, or throws. */
    static boolean take(LockProvider<?> provider, long withinMs) throws Exception {
        long untilMs = System.nanoTime() / 1_000_000 + withinMs;
        long leftMs = withinMs;
        HoodieLockException failure = null;
        do {
            try {
                if (provider.tryLock(Math.max(1, leftMs), TimeUnit.MILLISECONDS)) {
                    return true;
                }
            } catch (HoodieLockException error) {
                failure = error;
            }
            Thread.sleep(POLL_MS);
            leftMs = untilMs - System.nanoTime() / 1_000_000;
        } while (leftMs > 0);
        if (failure != null) {
            System.err.println(failure);
        }
        return false;
    }

    static int hammer(LockProvider<?> provider, int rounds, int pauseMs, Path folder) throws Exception {
        int overlaps = 0;
        for (int round = 0; round < rounds; round++) {
            if (!take(provider, 60_000)) {
                throw new IllegalStateException("Java got no turn");
            }
            boolean alone = true;
            try {
                Files.createFile(folder.resolve("inside"));
            } catch (FileAlreadyExistsException error) {
                overlaps++;
                alone = false;
            }
            Path count = folder.resolve("count");
            int before = Integer.parseInt(Files.readString(count).trim());
            Files.writeString(folder.resolve("tokens"), "0 java\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            Files.writeString(count, Integer.toString(before + 1));
            if (alone) {
                Files.delete(folder.resolve("inside"));
            }
            provider.unlock();
            Thread.sleep(pauseMs);
        }
        return overlaps;
    }

    static void say(String facts) {
        System.out.println("{" + facts + "}");
        System.out.flush();
    }

    /** Hadoop's configuration as Hudi hands it to its providers; only that for the Hive metastore asks for it. */
    private static final class Hadoop extends StorageConfiguration<Object> {
        @Override
        public StorageConfiguration<Object> newInstance() {
            return this;
        }

        @Override
        public Object unwrap() {
            try {
                return Class.forName("org.apache.hadoop.conf.Configuration").getConstructor().newInstance();
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public Object unwrapCopy() {
            return unwrap();
        }

        @Override
        public void set(String key, String value) {
            throw new UnsupportedOperationException(key);
        }

        @Override
        public Option<String> getString(String key) {
            return Option.empty();
        }

        @Override
        public StorageConfiguration<Object> getInline() {
            return this;
        }
    }
}
