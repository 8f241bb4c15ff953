// In the place of HTTP Toolkit's page: node page.js DIRECTORY PORT
// It asks the server for a proxy that passes everything on, and keeps each exchange that
// the server sends, with its bodies, as the page does.
const path = require('path');
const mockttp = require(require.resolve('mockttp', {
    paths: [path.dirname(require.resolve('httptoolkit-server/package.json'))] }));

const [directory, port] = process.argv.slice(2);
const ORIGIN = 'https://app.httptoolkit.tech';      // the page's, which the server requires
const ADMIN_PORT = 45456;                           // the server's, which it cannot change
const WAIT_MS = 50, kept = new Map();

process.stdin.resume();
process.stdin.on('end', () => process.exit(0));     // the server has ended

async function start() {
    const server = mockttp.getRemote({
        adminServerUrl: `http://127.0.0.1:${ADMIN_PORT}`,
        client: { headers: { origin: ORIGIN } },
        cors: false, recordTraffic: false, suggestChanges: false, http2: 'fallback',
    });
    await server.start(Number(port));
    const trusted = [{ certPath: path.join(directory, 'origin.pem') }];
    // The option has two names, by version
    await server.forUnmatchedRequest().thenPassThrough({
        trustAdditionalCAs: trusted, additionalTrustedCAs: trusted });
    for (const event of ['request-initiated', 'request', 'response', 'abort',
                         'tls-client-error', 'client-error'])
        await server.on(event, exchange =>
            kept.set(exchange.id, { ...kept.get(exchange.id), [event]: exchange }));
}
async function main() {
    for (;;) {
        try { return await start(); } catch (error) {
            if (!/Failed to connect/.test(error)) throw error;
        }
        // Until the server listens
        await new Promise(done => setTimeout(done, WAIT_MS));
    }
}
main().catch(error => { console.error(error); process.exit(1); });
