import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Takes a lock by Curator's InterProcessMutex on command: CuratorLock HOSTS PATH SESSION_MS, one command a line on stdin. */
public class CuratorLock {
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(args[0])
            .sessionTimeoutMs(Integer.parseInt(args[2])).connectionTimeoutMs(5000)
            .retryPolicy(new ExponentialBackoffRetry(50, 10)).build();
        client.start();
        InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 3);
            if (words[0].equals("take")) {
                say("\"took\": " + mutex.acquire((long) (Double.parseDouble(words[1]) * 1000), TimeUnit.MILLISECONDS));
            } else if (words[0].equals("release")) {
                mutex.release();
                say("\"released\": true");
            } else if (words[0].equals("hammer")) {
                say("\"overlaps\": " + hammer(mutex, Integer.parseInt(words[1]), Path.of(words[2])));
            } else {
                client.blockUntilConnected();
                say("\"ready\": true");
            }
        }
        client.close();
    }

    static int hammer(InterProcessMutex mutex, int rounds, Path folder) throws Exception {
        int overlaps = 0;
        for (int round = 0; round < rounds; round++) {
            mutex.acquire();
            boolean alone = true;
            try {
                Files.createFile(folder.resolve("inside"));
            } catch (FileAlreadyExistsException error) {
                overlaps++;
                alone = false;
            }
            Path count = folder.resolve("count");
            int before = Integer.parseInt(Files.readString(count).trim());
            Files.writeString(folder.resolve("tokens"), "0 java\n", java.nio.file.StandardOpenOption.CREATE,
                java.nio.file.StandardOpenOption.APPEND);
            Files.writeString(count, Integer.toString(before + 1));
            if (alone) {
                Files.delete(folder.resolve("inside"));
            }
            mutex.release();
        }
        return overlaps;
    }

    static void say(String facts) {
        System.out.println("{" + facts + "}");
        System.out.flush();
    }
}
