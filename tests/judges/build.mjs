// Makes one program of chromium.mts and DevTools' sources: node build.mjs SOURCE RESULT.
import * as esbuild from 'esbuild';

// A file that DevTools' own build makes
const LOCALES = `export const LOCALES = ['en-US'], BUNDLED_LOCALES = ['en-US'],
  DEFAULT_LOCALE = 'en-US', REMOTE_FETCH_PATTERN = '', LOCAL_FETCH_PATTERN = '';`;

await esbuild.build({
  entryPoints: [process.argv[2]], outfile: process.argv[3], bundle: true,
  platform: 'node', format: 'esm', target: 'node18', logLevel: 'error',
  nodePaths: [`${process.cwd()}/node_modules`],
  plugins: [{name: 'locales', setup(build) {
    build.onResolve({filter: /\/locales\.js$/}, () => ({path: 'locales', namespace: 'made'}));
    build.onLoad({filter: /.*/, namespace: 'made'}, () => ({contents: LOCALES}));
  }}],
});
