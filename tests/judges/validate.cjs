// Prints "valid", or what har-schema objects to in the archive that is the argument.
const {har} = require(`${process.cwd()}/node_modules/har-validator`);
const fs = require('node:fs');

har(JSON.parse(fs.readFileSync(process.argv[2], 'utf8'))).then(
  () => console.log('valid'), error => console.log(JSON.stringify(error.errors)));
