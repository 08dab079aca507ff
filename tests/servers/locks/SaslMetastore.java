import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.security.Security;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.sasl.AuthorizeCallback;
import org.apache.hadoop.hive.metastore.api.ThriftHiveMetastore;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.security.SaslPlainServer;
import org.apache.hadoop.security.token.Token;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TSaslServerTransport;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TSocket;

/**
 * A metastore behind Java's SASL: passes calls on to a real one that needs no log-in, as its own server class needs Kerberos
 * for any SASL at all. Arguments: port of the real one. Prints its own port and a delegation token as Hadoop writes it.
 */
public class SaslMetastore {
    public static void main(String[] arguments) throws Exception {
        byte[] identifier = new byte[300];
        byte[] secret = new byte[20];
        for (int i = 0; i < identifier.length; i++) identifier[i] = (byte) i;
        for (int i = 0; i < secret.length; i++) secret[i] = (byte) (200 + i);
        Token<?> token = new Token<>(identifier, secret, new Text("HIVE_DELEGATION_TOKEN"), new Text("hive"));
        String name = java.util.Base64.getEncoder().encodeToString(identifier);
        String password = java.util.Base64.getEncoder().encodeToString(secret);

        TSocket socket = new TSocket("127.0.0.1", Integer.parseInt(arguments[0]));
        socket.open();
        Object real = new ThriftHiveMetastore.Client(new TBinaryProtocol(socket));
        Class<?>[] faces = {ThriftHiveMetastore.Iface.class};
        Object passing = Proxy.newProxyInstance(SaslMetastore.class.getClassLoader(), faces, (self, method, values) -> {
            synchronized (real) {
                try {
                    return method.invoke(real, values);
                } catch (InvocationTargetException failure) {
                    throw failure.getCause();
                }
            }
        });

        Security.addProvider(new SaslPlainServer.SecurityProvider());
        Map<String, String> properties = Map.of("javax.security.sasl.qop", "auth");
        TSaslServerTransport.Factory login = new TSaslServerTransport.Factory();
        login.addServerDefinition("DIGEST-MD5", null, "default", properties, check(name, password));
        login.addServerDefinition("PLAIN", "", "", properties, checkPlain("etl", "open sesame"));

        TServerSocket listening = new TServerSocket(new java.net.InetSocketAddress("127.0.0.1", 0));
        TThreadPoolServer.Args settings = new TThreadPoolServer.Args(listening);
        settings.processor(new ThriftHiveMetastore.Processor<>((ThriftHiveMetastore.Iface) passing));
        settings.transportFactory(login).protocolFactory(new TBinaryProtocol.Factory());
        System.out.println(listening.getServerSocket().getLocalPort() + " " + token.encodeToUrlString());
        new TThreadPoolServer(settings).serve();
    }

    private static CallbackHandler check(String name, String password) {
        return callbacks -> {
            String given = null;
            for (Callback each : callbacks) {
                if (each instanceof NameCallback) given = ((NameCallback) each).getDefaultName();
            }
            for (Callback each : callbacks) {
                if (each instanceof PasswordCallback && (given == null || given.equals(name))) {
                    ((PasswordCallback) each).setPassword(password.toCharArray());
                }
                if (each instanceof AuthorizeCallback) ((AuthorizeCallback) each).setAuthorized(true);
            }
        };
    }

    /** Of PLAIN the server hands over what the client sent, and it is for the handler to compare. */
    private static CallbackHandler checkPlain(String name, String password) {
        return callbacks -> {
            boolean right = true;
            for (Callback each : callbacks) {
                if (each instanceof NameCallback) right &= name.equals(((NameCallback) each).getName());
                if (each instanceof PasswordCallback) {
                    right &= password.equals(new String(((PasswordCallback) each).getPassword()));
                }
            }
            if (!right) throw new java.io.IOException("wrong user or password");
            for (Callback each : callbacks) {
                if (each instanceof AuthorizeCallback) ((AuthorizeCallback) each).setAuthorized(true);
            }
        };
    }
}
