// A request as a command of curl, a call of fetch or of httpx.
const REDACTED = "[redacted]";
// Made by the client itself, or by the proxy on the way
const MADE = new Set(["connection", "content-length", "expect", "keep-alive", "host",
  "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "via"]);

// {method, url, fields, left (fields without a value), body (bytes or null)}
async function requestOf(one) {
  const lines = headLines(one.request_head), fields = [], left = [];
  const authority = /^[a-z]+:\/\/([^/?#]*)/i.exec(one.url)?.[1] ?? "";
  for (const line of lines.slice(1)) {
    const at = line.indexOf(":"), name = line.slice(0, at), value = line.slice(at + 1).trim();
    const key = name.toLowerCase();
    if (at < 1 || (MADE.has(key) && !(key === "host" && value !== authority))) continue;
    if (value === REDACTED) left.push(name); else fields.push([name, value]);
  }
  const data = one.request_body === "none" ? null : await readBody("request");
  if (one.request_body_state) left.push(`body (${one.request_body_state})`);
  // Content is kept decoded
  const body = data?.length ? data : null;
  return {method: one.method, url: one.url, left, body, isText: one.request_body === "text",
    fields: fields.filter(([name]) => !/^content-encoding$/i.test(name))};
}
const shell = text => "'" + text.replace(/'/g, "'\\''") + "'";
const note = (left, mark) => left.length ? `${mark} not kept: ${left.join(", ")}\n` : "";

function asCurl({method, url, fields, left, body, isText}) {
  const words = ["curl --globoff --path-as-is"];
  const data = body && (isText && !decoded(body).includes("\0")
    ? `--data-raw ${shell(decoded(body))}` : "--data-binary @-");
  if (method !== (body ? "POST" : "GET"))
    words.push(method === "HEAD" ? "--head" : `-X ${shell(method)}`);
  words.push(shell(url), ...fields.map(([name, value]) =>
    `-H ${shell(value ? `${name}: ${value}` : `${name};`)}`));
  // curl would send its own for a body
  if (body && !fields.some(([name]) => /^content-type$/i.test(name))) words.push("-H 'Content-Type:'");
  if (data) words.push(data);
  const before = data === "--data-binary @-" ? `echo ${toBase64(body)} | base64 -d | ` : "";
  return note(left, "#") + before + words.join(" \\\n  ") + "\n";
}
function asFetch({method, url, fields, left, body, isText}) {
  const text = value => JSON.stringify(value);
  const lines = [`  method: ${text(method)},`, `  headers: ${JSON.stringify(fields)},`];
  if (body) lines.push(isText ? `  body: ${text(decoded(body))},`
    : `  body: Uint8Array.from(atob(${text(toBase64(body))}), one => one.charCodeAt(0)),`);
  return `${note(left, "//")}await fetch(${text(url)}, {\n${lines.join("\n")}\n});\n`;
}
// A literal of bytes, or of text, in Python
function python(data) {
  let text = "";
  for (const byte of data)
    text += byte === 34 || byte === 92 ? "\\" + String.fromCharCode(byte)
      : byte >= 32 && byte < 127 ? String.fromCharCode(byte)
        : "\\x" + byte.toString(16).padStart(2, "0");
  return `b"${text}"`;
}
function asHttpx({method, url, fields, left, body}) {
  const text = value => python(new TextEncoder().encode(value));
  const latin = value => python(Uint8Array.from(value, one => one.charCodeAt(0)));
  const lines = [`    ${text(method)}.decode(), ${text(url)}.decode(),`, "    headers=["];
  for (const [name, value] of fields) lines.push(`        (${latin(name)}, ${latin(value)}),`);
  lines.push("    ],");
  if (body) lines.push(`    content=${python(body)},`);
  return `${note(left, "#")}import httpx\n\nresponse = httpx.request(\n${lines.join("\n")}\n)\n`;
}
const WRITERS = {curl: asCurl, fetch: asFetch, httpx: asHttpx};

async function copyAs(name) {
  if (!flow || !WRITERS[name]) return;
  try {
    $("text").value = WRITERS[name](await requestOf(flow));
  } catch (error) {
    $("note").textContent = error.message;
    return;
  }
  $("text-title").textContent = `#${flow.id} as ${name}`;
  $("text-note").textContent = "";
  $("text-dialog").showModal();
}
async function copyText() {
  $("text").select();
  try {
    await navigator.clipboard.writeText($("text").value);
    $("text-note").textContent = "copied";
  } catch {                             // not from a secure context, or not permitted
    $("text-note").textContent = "selected: press Ctrl+C";
  }
}
