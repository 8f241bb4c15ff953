// proxy-chain (npm): node server.js LISTEN PORT USER PASSWORD
// One process; Basic credentials compared on every request, no upstream proxy.
const { Server } = require('proxy-chain');

const [host, port, user, password] = process.argv.slice(2);
const server = new Server({
    host,
    port: Number(port),
    verbose: false,
    prepareRequestFunction: ({ username, password: given }) => ({
        requestAuthentication: username !== user || given !== password,
    }),
});
server.listen();
