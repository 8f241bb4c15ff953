// Replay with edits, and compose. The proxy sends the request, as one of its user's.
let sendBody = null;            // see editOctets

// `request`: as the proxy has it; `focus`: where the keyboard is
function openSend(title, request, left = [], focus = "send-method") {
  fillSend(request);
  $("send-title").textContent = title;
  $("send-left").textContent = left.length ? `Not kept, and left out: ${left.join(", ")}.` : "";
  $("send-result").replaceChildren();
  $("send-dialog").showModal();
  $(focus).focus();
}
// `body`: base64
function fillSend({method, url, fields, body}) {
  const data = fromBase64(body);
  sendBody = editOctets($("send-body"), data);
  $("send-method").value = method;
  $("send-url").value = url;
  $("send-fields").value = fields.map(([name, value]) => `${name}: ${value}`).join("\n");
  $("send-body").placeholder = sendBody.isText ? ""
    : `${bytes(data.length)} that are not UTF-8; they are sent if this stays empty`;
  noteSend("");
}
function noteSend(text, className = "") {
  $("send-note").textContent = text;
  $("send-note").className = className;
}
// A command of curl in place of a URL. The proxy reads it (capture/pasted.py)
const isCurl = text => /^\s*curl(\.exe)?\s/.test(text);
async function takeCurl(command) {
  try {
    const read = await (await ask("flows/curl", {method: "POST", body: command})).json();
    fillSend({method: "GET", fields: [], body: "", ...read});
    noteSend("read from the command: look at it, and send it");
  } catch (error) { noteSend(error.message, "bad"); }
}
function startSend() {
  $("send-url").addEventListener("paste", event => {
    const text = event.clipboardData.getData("text/plain");
    if (!isCurl(text)) return;
    event.preventDefault();             // a field of one line would lose the line ends
    takeCurl(text);
  });
}
async function replay(focus = "send-go") {
  if (!flow) return;
  if (flow.kind === "tunnel") {
    $("note").textContent = "a tunnel cannot be replayed";
    return;
  }
  try {
    const {request, left} = await (await ask(`${pathOf(flow.id)}/as/json`)).json();
    openSend(`Replay of #${flow.id}`, request, left, focus);
  } catch (error) { $("note").textContent = error.message; }
}
function compose() {
  openSend("Compose a request", {method: "GET", url: "http://", fields: [], body: ""}, [],
    "send-url");
}
function readFields(text) {
  return text.split("\n").filter(line => line.trim()).map(line => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`not a field: ${line}`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
}
async function sendNow() {
  const go = $("send-go");
  if (isCurl($("send-url").value)) return takeCurl($("send-url").value);
  go.disabled = true;
  noteSend("sending …");
  $("send-result").replaceChildren();
  try {
    const fields = readFields($("send-fields").value);
    const data = sendBody.octets(fields.find(([name]) => /^content-type$/i.test(name))?.[1] ?? "");
    const answer = await (await ask("flows/send?view=auto", {method: "POST", body: JSON.stringify({
      method: $("send-method").value.trim(), url: $("send-url").value.trim(),
      fields, body: toBase64(data),
      user: $("send-user").value, password: $("send-password").value})})).json();
    const body = fromBase64(answer.body);
    const type = /^content-type:\s*(.*)$/im.exec(answer.head)?.[1] ?? "";
    const place = make("div");
    $("send-note").textContent = `${answer.status}, ${answer.ms.toFixed(1)} ms`
      + (answer.truncated ? ", body truncated" : "");
    $("send-result").replaceChildren(make("h2", "response"), headNode(answer.head), place);
    if (body.length) viewBody(place, {
      // Of the others the proxy has sent the first one alone
      views: answer.views.filter((view, i) => i === 0 || view === "text" || view === "hex"),
      type, read: async () => body, show: async () => answer.shown});
  } catch (error) {
    noteSend(error.message, "bad");
  } finally {
    go.disabled = false;
  }
}
