import java.io.File;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.lock.LockProvider;
import org.apache.hudi.exception.HoodieLockException;
import org.apache.hudi.storage.StorageConfiguration;

/**
 * A lock provider of an older Hudi release in a writer of this one, whose classes it does not fit: it is loaded with the jars of
 * its own release, from the folder older.jars, and nothing else.
 */
public class OlderLock implements LockProvider<Object> {
    /** By folder: Hudi makes a provider for each time that it takes the lock, and these classes take seconds to load. */
    private static final Map<String, ClassLoader> LOADERS = new HashMap<>();

    private final Lock provider;

    public OlderLock(LockConfiguration configuration, StorageConfiguration<?> storage) throws Exception {
        Properties properties = new Properties();
        configuration.getConfig().forEach((key, value) -> properties.setProperty(key.toString(), value.toString()));
        ClassLoader before = Thread.currentThread().getContextClassLoader();
        ClassLoader loader = loaderOf(properties.getProperty("older.jars"));
        Thread.currentThread().setContextClassLoader(loader);
        try {
            Class<?> settings = loader.loadClass("org.apache.hudi.common.config.LockConfiguration");
            Class<?> unused = loader.loadClass("org.apache.hudi.storage.StorageConfiguration");
            Class<?> type = loader.loadClass(properties.getProperty("older.provider"));
            Object given = settings.getConstructor(Properties.class).newInstance(properties);
            provider = (Lock) type.getConstructor(settings, unused).newInstance(given, null);
        } finally {
            Thread.currentThread().setContextClassLoader(before);
        }
    }

    private static synchronized ClassLoader loaderOf(String folder) throws MalformedURLException {
        if (!LOADERS.containsKey(folder)) {
            File[] jars = new File(folder).listFiles((where, name) -> name.endsWith(".jar"));
            URL[] urls = new URL[jars.length];
            for (int i = 0; i < jars.length; i++) {
                urls[i] = jars[i].toURI().toURL();
            }
            LOADERS.put(folder, new URLClassLoader(urls, ClassLoader.getPlatformClassLoader()));
        }
        return LOADERS.get(folder);
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) {
        try {
            return provider.tryLock(time, unit);
        } catch (InterruptedException | RuntimeException error) {
            // Hudi tries again after an exception of this class, but the older release throws its own class of that name.
            throw new HoodieLockException(String.valueOf(error.getMessage()), error);
        }
    }

    @Override
    public void unlock() {
        provider.unlock();
    }

    @Override
    public Object getLock() {
        return provider;
    }

    @Override
    public void close() {
        try {
            ((AutoCloseable) provider).close();
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }
}
