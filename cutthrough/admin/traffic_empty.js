// What an empty list says: why it is empty, and the command to try.
let overview = null, isReadOnly = false, shownKey = null;

async function readOverview() {
  try {
    overview = await (await fetch("overview")).json();
    isReadOnly = (await (await fetch("session", {headers: sessionFields()})).json()).read_only;
  } catch { /* the list says that there is no answer */ }
  mark();
}
const proxyAddress = () => overview?.listeners.find(listener => listener.http && !listener.tls)?.address
  ?? "127.0.0.1:8888";
const userOf = () => $("send-user").value || "USER";

// A title, lines of text, and commands
const SAYINGS = {
  "read-only": () => ["This listener has no token", "Captured requests are shown to holders of a "
    + "token only. Start the proxy with one:",
  ["cutthrough serve --admin 127.0.0.1:9090 --admin-token-file FILE"]],
  "signed-out": () => ["Give the admin token", "It is in the file that admin_token_file names. "
    + "On your own machine, this prints an address that has it:", ["cutthrough inspect"]],
  "not-captured": () => ["Nothing is captured here", "Captures take a file, and a rule that asks "
    + "for them. Or let inspect do both:",
  ['capture_file = "/var/lib/cutthrough/flows.db"        # of the configuration',
    '[[rules]]                                           # of the policy\naction = "allow"\n'
    + 'capture = "full"', "cutthrough inspect"]],
  filtered: () => ["No flow passes", applied.search ? "Words are searched whole, in URLs, heads "
    + "and bodies." : `${applied.filter} lets none of them pass.`, []],
  folded: () => ["CONNECTs alone", "Their tunnels were opened, and no request inside is in this "
    + "list. The button in the head shows them.", []],
  nothing: () => ["Nothing has passed yet", "Send something through the proxy, and it is here at "
    + "once. For instance:",
  [`curl -x http://${userOf()}@${proxyAddress()} http://example.com/`,
    `export http_proxy=http://${userOf()}:PASSWORD@${proxyAddress()} https_proxy=$http_proxy`]],
};
function reasonOfNothing() {
  if (total()) return "";
  if (!isSignedIn()) return isReadOnly ? "read-only" : "signed-out";
  if (isNotCaptured) return "not-captured";
  if (!complete_) return "";
  return folded ? "folded" : applied.filter || applied.search ? "filtered" : "nothing";
}
function showNothing() {
  const reason = reasonOfNothing(), key = reason && `${reason} ${proxyAddress()} ${applied.filter}`;
  if (key === shownKey) return;
  shownKey = key;
  $("nothing").hidden = !reason;
  if (!reason) return $("nothing").replaceChildren();
  const [title, text, commands] = SAYINGS[reason](), parts = [make("h2", title), make("p", text)];
  for (const command of commands) parts.push(make("pre", command));
  if (reason === "filtered") parts.push(button("show all", () => {
    $("filter").value = $("search").value = "";
    $("apply").click();
  }));
  $("nothing").replaceChildren(...parts);
}
