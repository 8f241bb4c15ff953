// HTTP Toolkit's server: node server.js DIRECTORY PORT
// The server keeps nothing: it sends each exchange to the page of a browser, which has
// them in memory. page.js is in the page's place. Like the browsers of other debuggers it
// is none of the processes that are measured, so a shell that ends is its parent; it ends
// when the pipe that both share does.
const { spawn } = require('child_process');
const path = require('path');

const [directory, port] = process.argv.slice(2);
const quoted = [path.join(__dirname, 'page.js'), directory, port]
    .map(word => `'${word}'`).join(' ');
spawn('/bin/sh', ['-c', `'${process.execPath}' ${quoted} <&3 &`],
    { stdio: ['ignore', 'inherit', 'inherit', 'pipe'] });

process.argv.splice(2, Infinity, 'start', '--config', path.join(directory, 'config'));
require(path.join(path.dirname(require.resolve('httptoolkit-server/package.json')), 'bin/run'));
