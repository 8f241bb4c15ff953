"""Programs that put a file and get others, each as its language has it.

    PROGRAM VERSION FILE URL…

FILE is sent to the first URL, and then each URL is read. A line for each that is read:
the version of HTTP ("1.1" or "2"), the status, and the SHA-256 of the body. The proxy
is that of $https_proxy; the trusted authorities are in the variable of the program's
kind.
"""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.proxy import ROOT

CURL = """
set -e; version=$1; file=$2; shift 2
curl -sSf "--http$version" -T "$file" "$1"
for url; do
    curl -sSf "--http$version" -o got -w '%{http_version} %{response_code} ' "$url"
    sha256sum got
done
"""

# It has an option for the authority, and no variable
WGET = """
set -e; file=$2; shift 2
echo "ca_certificate = $WGET_CA" >.wgetrc
wget -q -O /dev/null --method=PUT "--body-file=$file" "$1"
for url; do
    wget -q -O got "$url"
    echo "1.1 200 $(sha256sum got)"
done
"""

URLLIB = """
import hashlib, sys, urllib.request
_, file, *urls = sys.argv[1:]
with open(file, "rb") as opened:
    urllib.request.urlopen(urllib.request.Request(
        urls[0], opened.read(), method="PUT"), timeout=20).close()
for url in urls:
    with urllib.request.urlopen(url, timeout=20) as reply:
        print("1.1", reply.status, hashlib.sha256(reply.read()).hexdigest())
"""

REQUESTS = """
import hashlib, requests, sys
_, file, *urls = sys.argv[1:]
with requests.Session() as session:
    with open(file, "rb") as opened:
        session.put(urls[0], data=opened, timeout=20).raise_for_status()
    for url in urls:
        reply = session.get(url, timeout=20)
        print("1.1", reply.status_code, hashlib.sha256(reply.content).hexdigest())
"""

HTTPX = """
import hashlib, httpx, sys
version, file, *urls = sys.argv[1:]
with httpx.Client(http2=version == "2", timeout=20) as client, open(file, "rb") as data:
    client.put(urls[0], content=data).raise_for_status()
    for url in urls:
        reply = client.get(url)
        print(reply.http_version.removeprefix("HTTP/"), reply.status_code,
              hashlib.sha256(reply.content).hexdigest())
"""

AIOHTTP = """
import aiohttp, asyncio, hashlib, sys
_, file, *urls = sys.argv[1:]
async def main():
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(trust_env=True, timeout=timeout) as session:
        with open(file, "rb") as data:
            async with session.put(urls[0], data=data) as reply:
                reply.raise_for_status()
        async def get(url):
            async with session.get(url) as reply:
                return reply.status, hashlib.sha256(await reply.read()).hexdigest()
        for found in await asyncio.gather(*map(get, urls)):
            print("1.1", *found)
asyncio.run(main())
"""

NODE = """
const http = require('http'), https = require('https'), http2 = require('http2');
const tls = require('tls'), fs = require('fs'), crypto = require('crypto');
const [version, file, ...urls] = process.argv.slice(1);
const target = new URL(urls[0]), proxy = new URL(process.env.https_proxy);
const pair = [proxy.username, proxy.password].map(decodeURIComponent).join(':');
const auth = 'Basic ' + Buffer.from(pair).toString('base64');

const digest = (stream, done) => {
  const hash = crypto.createHash('sha256');
  stream.on('data', data => hash.update(data));
  stream.on('end', () => done(hash.digest('hex')));
};
const over1 = socket => {
  const agent = new https.Agent({keepAlive: true, maxSockets: 1});
  agent.createConnection = () => socket;
  return (method, url, body) => new Promise((done, fail) => {
    const take = reply => digest(reply, found => done([reply.statusCode, found]));
    https.request(url, {agent, method}, take).on('error', fail).end(body);
  });
};
const over2 = socket => {
  const session = http2.connect(target.origin, {createConnection: () => socket});
  return (method, url, body) => new Promise((done, fail) => {
    let status = 0;
    const stream = session.request({':method': method, ':path': new URL(url).pathname});
    stream.on('response', fields => { status = fields[':status']; }).on('error', fail);
    digest(stream, found => done([status, found]));
    stream.end(body);
  });
};
http.request({host: proxy.hostname, port: proxy.port, method: 'CONNECT',
    path: target.host, headers: {'Proxy-Authorization': auth}})
  .on('connect', async (reply, socket) => {
    const inner = tls.connect({socket, servername: target.hostname,
      ALPNProtocols: [version === '2' ? 'h2' : 'http/1.1']});
    const ask = version === '2' ? over2(inner) : over1(inner);
    await ask('PUT', urls[0], fs.readFileSync(file));
    for (const url of urls) console.log(version, ...await ask('GET', url));
    process.exit(0);
  }).end();
"""

# URL: each message comes back as it was sent. Debian has both packages: node-ws
NODE_WEBSOCKET = """
const WebSocket = require('ws'), {HttpsProxyAgent} = require('https-proxy-agent');
const crypto = require('crypto'), assert = require('assert');
const socket = new WebSocket(process.argv[1],
  {agent: new HttpsProxyAgent(process.env.https_proxy)});
const sent = ['text', crypto.randomBytes(70_000), crypto.randomBytes(1_000_000), ''];
let count = 0;
socket.on('open', () => sent.forEach(message => socket.send(message)));
socket.on('message', (data, isBinary) => {
  const message = sent[count++];
  assert.deepStrictEqual(isBinary ? data : data.toString(), message);
  if (count === sent.length) socket.ping();
});
socket.on('pong', () => socket.close(1000));
socket.on('close', code => console.log(count, code));
"""
#: Where Debian has packages of Node; Node of another source does not look there.
NODE_PACKAGES = "/usr/share/nodejs"

GO = """
package main

import (
	"crypto/sha256"; "crypto/tls"; "fmt"; "io"; "net/http"; "net/url"; "os"
)

func check(err error) {
	if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }
}

func main() {
	proxy, err := url.Parse(os.Getenv("https_proxy"))
	check(err)
	way := &http.Transport{Proxy: http.ProxyURL(proxy)}
	if os.Args[1] == "1.1" {
		way.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	client := http.Client{Transport: way}
	file, err := os.Open(os.Args[2])
	check(err)
	request, err := http.NewRequest("PUT", os.Args[3], file)
	check(err)
	reply, err := client.Do(request)
	check(err)
	reply.Body.Close()
	for _, target := range os.Args[3:] {
		reply, err := client.Get(target)
		check(err)
		hash := sha256.New()
		_, err = io.Copy(hash, reply.Body)
		check(err)
		reply.Body.Close()
		version := "1.1"
		if reply.ProtoMajor == 2 { version = "2" }
		fmt.Printf("%s %d %x\\n", version, reply.StatusCode, hash.Sum(nil))
	}
}
"""

JAVA = """
import java.io.InputStream;
import java.math.BigInteger;
import java.net.*;
import java.net.http.*;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Path;
import java.security.MessageDigest;

public class Fetch {
    public static void main(String[] given) throws Exception {
        URI way = URI.create(System.getenv("https_proxy"));
        String[] user = way.getUserInfo().split(":", 2);
        HttpClient client = HttpClient.newBuilder()
            .version(given[0].equals("2") ? HttpClient.Version.HTTP_2
                                          : HttpClient.Version.HTTP_1_1)
            .proxy(ProxySelector.of(
                new InetSocketAddress(way.getHost(), way.getPort())))
            .authenticator(new Authenticator() {
                protected PasswordAuthentication getPasswordAuthentication() {
                    return new PasswordAuthentication(user[0], user[1].toCharArray());
                }
            }).build();
        client.send(HttpRequest.newBuilder(URI.create(given[2]))
            .PUT(HttpRequest.BodyPublishers.ofFile(Path.of(given[1]))).build(),
            BodyHandlers.discarding());
        for (int i = 2; i < given.length; i++) {
            HttpResponse<InputStream> it = client.send(
                HttpRequest.newBuilder(URI.create(given[i])).build(),
                BodyHandlers.ofInputStream());
            MessageDigest hash = MessageDigest.getInstance("SHA-256");
            byte[] block = new byte[1 << 16];
            for (int n; (n = it.body().read(block)) >= 0; ) hash.update(block, 0, n);
            System.out.printf("%s %d %064x%n",
                it.version() == HttpClient.Version.HTTP_2 ? "2" : "1.1",
                it.statusCode(), new BigInteger(1, hash.digest()));
        }
        System.exit(0);
    }
}
"""


SHELL = {"curl": (CURL, "CURL_CA_BUNDLE"), "wget": (WGET, "WGET_CA")}
PYTHON = {"urllib": (URLLIB, "SSL_CERT_FILE"),
          "requests": (REQUESTS, "REQUESTS_CA_BUNDLE"),
          "httpx": (HTTPX, "SSL_CERT_FILE"),
          "aiohttp": (AIOHTTP, "SSL_CERT_FILE")}
JAVA_FLAGS = ("-Xshare:auto", "-Djdk.http.auth.tunneling.disabledSchemes=",
              "-Djavax.net.ssl.trustStorePassword=changeit")


class Programs:
    """The programs by their names. Go's program and Java's trust store are made in
    `home` when a test needs them; the trust store has the authority `trusted`."""

    def __init__(self, home: Path, trusted: Path) -> None:
        self._home, self._trusted = home, trusted

    def command(self, name: str) -> tuple[tuple[str, ...], str]:
        """Returns a program's first words, and the variable that names the authority.
        Skips the test if the program is not installed."""
        if name in SHELL:
            need(name)
            text, trust = SHELL[name]
            return ("sh", "-c", text, "sh"), trust
        if name in PYTHON:
            text, trust = PYTHON[name]
            return (sys.executable, "-c", text), trust
        if name == "node":
            return ("node", "-e", NODE), "NODE_EXTRA_CA_CERTS"
        if name == "go":
            return (self._go,), "SSL_CERT_FILE"
        need("javac")
        (self._home / "Fetch.java").write_text(JAVA)
        return ("java", *JAVA_FLAGS, f"-Djavax.net.ssl.trustStore={self._java_trust}",
                str(self._home / "Fetch.java")), "TRUSTED"

    @functools.cached_property
    def _go(self) -> str:
        return build_go(GO, self._home)

    @functools.cached_property
    def _java_trust(self) -> str:
        return trust_of_java(self._trusted, self._home)


def run_behind(proxy_url: str, folder: Path, *words: str, trust: str, trusted: Path,
               **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in `folder`; `trust` is the variable for the authority `trusted`.
    Skips the test if the program is not installed."""
    need(words[0])
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return subprocess.run(
        words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=False, env={
            "PATH": os.environ["PATH"], "HOME": str(folder), "no_proxy": "",
            "GIT_CONFIG_NOSYSTEM": "1", trust: str(trusted),
            **dict.fromkeys(names, proxy_url), **more})


def need(*programs: str) -> None:
    for name in programs:
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed")


def build_go(text: str, home: Path) -> str:
    """The program. The compiled packages of Go's library stay for the next run."""
    need("go")
    (home / "main.go").write_text(text)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GO111MODULE": "off",
           "GOCACHE": str(ROOT / "build" / "go")}
    try:
        subprocess.run(["go", "build", "-o", "client", "main.go"], env=env, cwd=home,
                       capture_output=True, timeout=90, check=True)
    except subprocess.SubprocessError as error:
        pytest.skip(f"go builds nothing here: {error}")
    return str(home / "client")


def trust_of_java(certificate: Path, home: Path) -> str:
    """A trust store with this authority alone."""
    need("java", "keytool")
    store = str(home / "trusted.p12")
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-alias", "proxy", "-file",
         str(certificate), "-keystore", store, "-storetype", "PKCS12", "-storepass",
         "changeit"], check=True, capture_output=True, timeout=60)
    return store
