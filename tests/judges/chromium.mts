// Chromium's DevTools without a browser: reads the archive that is its argument as the
// network panel does, and prints the archive that the panel would save of it.
import * as I18n from 'chrome-devtools-frontend/front_end/core/i18n/i18n.js';
import * as HAR from 'chrome-devtools-frontend/front_end/models/har/har.js';
import * as fs from 'node:fs';

I18n.DevToolsLocale.DevToolsLocale.instance({create: true, data: {
  navigatorLanguage: 'en-US', settingLanguage: 'en-US', lookupClosestDevToolsLocale: () => 'en-US',
}});
I18n.i18n.registerLocaleDataForTest('en-US', {});
const root = new HAR.HARFormat.HARRoot(JSON.parse(fs.readFileSync(process.argv[2], 'utf8')));
const requests = HAR.Importer.Importer.requestsFromHARLog(root.log);
const progress = {createSubProgress: () => ({})};
console.log(await HAR.Writer.Writer.harStringForRequests(requests, {sanitize: false}, progress));
