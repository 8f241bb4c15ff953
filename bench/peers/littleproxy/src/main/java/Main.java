// LittleProxy: java -cp 'classes:lib/*' Main LISTEN PORT USER PASSWORD
// Its own defaults for threads (Netty's); Basic credentials compared on every connection, as it does.

import java.net.InetSocketAddress;
import org.littleshoot.proxy.ProxyAuthenticator;
import org.littleshoot.proxy.impl.DefaultHttpProxyServer;

public final class Main {
    public static void main(String[] args) throws InterruptedException {
        DefaultHttpProxyServer.bootstrap()
            .withAddress(new InetSocketAddress(args[0], Integer.parseInt(args[1])))
            .withProxyAuthenticator(new ProxyAuthenticator() {
                @Override
                public boolean authenticate(String user, String password) {
                    return user.equals(args[2]) && password.equals(args[3]);
                }

                @Override
                public String getRealm() {
                    return "bench";
                }
            })
            .withIdleConnectionTimeout(600)
            .start();
        Thread.currentThread().join();  // its threads are daemons
    }
}
