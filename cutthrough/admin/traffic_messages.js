// The messages of a WebSocket, or of a stream of server-sent events.
const MOST_MESSAGES = 500;      // rows that are added at a time

function fromBase64(text) {
  return Uint8Array.from(atob(text), character => character.charCodeAt(0));
}
function clock(us) {
  return new Date(us / 1000).toISOString().slice(11, 23);
}
function contentNode(message) {
  const place = make("div");
  if (message.base64 !== undefined) {
    const data = fromBase64(message.base64);
    if (data.length) place.append(...hexNodes(data));
  } else if (message.text) place.append(...pieces(message.shown ?? message.text, MOST_TEXT));
  if (message.code !== undefined) place.prepend(make("p", `code ${message.code}`));
  if (message.state) place.append(make("p", message.state, "soft"));
  return place;
}
function rowOf(message) {
  return message.kind === "event"
    ? [message.id ?? "", message.event ?? "message", contentNode(message)]
    : [message.side === "request" ? "sent" : "received", clock(message.at_us), message.kind,
      bytes(message.bytes), contentNode(message)];
}
// One table; further rows come at a click
function messageTable(messages) {
  const names = messages[0].kind === "event" ? ["id", "event", "data"]
    : ["direction", "time (UTC)", "kind", "size", "content"];
  const made = table([]), head = made.createTHead().insertRow(), more = button("", () => add());
  made.id = "messages";
  for (const name of names) {
    const cell = make("th", name);
    cell.scope = "col";
    head.append(cell);
  }
  let at = 0;
  const add = () => {
    const next = table(messages.slice(at, at + MOST_MESSAGES).map(rowOf));
    made.tBodies[0].append(...next.tBodies[0].rows);
    at = Math.min(messages.length, at + MOST_MESSAGES);
    tell();
  };
  const tell = () => {
    more.hidden = at >= messages.length;
    more.textContent = `more: ${messages.length - at} left`;
  };
  add();
  return {nodes: [made, more], push: further => {
    const isAll = at === messages.length;
    messages.push(...further);
    if (isAll) add(); else tell();
  }};
}
function showMessages() {
  if (flow.open) return showTail();
  const place = make("div"), of = flow, state = flow.messages_state;
  if (!flow.messages) {
    return [make("p", state ? `No message is kept: ${state}.`
      : "No messages: those of WebSockets and of server-sent events are kept, if the rule has "
        + 'capture = "full".', "soft")];
  }
  ask(`flows/${flow.id}/messages?view=json`).then(answer => answer.json()).then(messages => {
    if (flow === of) place.replaceChildren(...messageTable(messages).nodes);
  }).catch(error => place.replaceChildren(make("p", error.message, "bad")));
  return [make("h2", `${flow.messages} messages` + (state ? `, ${state}` : "")), place];
}
