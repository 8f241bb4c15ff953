// Views of a body. The proxy makes most of them, as text (capture/views.py). Here are those of
// the bytes themselves; an image is decoded from a data: address, in which a browser runs
// nothing, and only if it is of one of these types.
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif",
  "image/bmp", "image/x-icon", "image/vnd.microsoft.icon"]);
const MOST_TEXT = 300000, MOST_HEX = 16384, BLOCK = 4096, LINE_EM = 1.5;

// `views`: their names, the usual one first; `type`: the content type; `read` gets the bytes,
// `show` the text of a view that is not here
function viewBody(place, {views, type, read, show}) {
  const bar = make("div", undefined, "bar"), shown = make("div"), kind = mediaOf(type);
  const names = IMAGES.has(kind) ? ["image", ...views] : views;
  let turn = 0;
  const select = async view => {
    const mine = ++turn;
    let nodes;
    for (const node of bar.children)
      node.setAttribute("aria-pressed", String(node.textContent === view));
    shown.setAttribute("aria-busy", "true");
    try {
      nodes = VIEWS[view] ? await VIEWS[view]({kind, type, read, show})
        : pieces(await show(view), MOST_TEXT, undefined, LEXER_OF[view]);
    } catch (error) { nodes = [make("p", error.message, "bad")]; }
    if (mine !== turn) return;          // another one was chosen
    shown.replaceChildren(...nodes);
    shown.removeAttribute("aria-busy");
  };
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "view as");
  shown.className = "shown";
  bar.append(...names.map(view => button(view, () => select(view))));
  place.replaceChildren(bar, shown);
  select(names[0]);
}

const mediaOf = type => type.split(";")[0].trim().toLowerCase();
// In the charset of the type; a browser knows the same labels as the proxy
function decoded(data, type = "") {
  const label = charsetOf(type);
  try {
    return new TextDecoder(label, {fatal: true}).decode(data);
  } catch {                             // an unknown label, or octets that are not in it
    return new TextDecoder().decode(data);
  }
}
const charsetOf = type => /;\s*charset\s*=\s*["']?([\w.:-]+)/i.exec(type)?.[1] ?? "utf-8";
function isUtf8(data) {
  try {
    new TextDecoder("utf-8", {fatal: true}).decode(data);
    return true;
  } catch {
    return false;
  }
}
// Octets as text in a field. `octets(type)` gives those that came if nobody has changed the
// text; others are UTF-8, with the line ends that there were
function editOctets(field, data) {
  const isText = !data.includes(0) && isUtf8(data);
  const text = isText ? decoded(data) : "";
  field.value = text;
  const shown = field.value, ends = /\r\n/.test(text) && !/(^|[^\r])\n/.test(text) ? "\r\n" : "\n";
  return {isText, isChanged: () => field.value !== shown, octets(type) {
    if (field.value === shown) return data;
    if (/[^\0-\x7f]/.test(field.value) && !/^utf-?8$/i.test(charsetOf(type)))
      throw new Error(`a new text is sent in UTF-8, but its Content-Type says ${charsetOf(type)}`);
    return new TextEncoder().encode(field.value.replaceAll("\n", ends));
  }};
}
// A long text in pieces: the next one at a click. `lexer`: its colours; undefined: none
function pieces(text, most, className, lexer) {
  const outside = lexer === "markup" ? foreignParts(text) : [];
  let at = 0;
  const pre = make("pre", undefined, className), more = button("", () => add());
  const add = () => {
    const cut = text.lastIndexOf("\n", at + most) + 1, isLast = at + most >= text.length;
    const end = !isLast && cut > at ? cut : at + most;
    pre.append(...blocks(text.slice(at, end), (node, from) => {
      if (lexer) paintLater(node, lexer, outside, from);
    }, at));
    at = end;
    more.hidden = at >= text.length;
    more.textContent = `more: ${bytes(text.length - at)} left`;
  };
  add();
  return more.hidden ? [pre] : [pre, more];
}
// Lines of a long text together: a browser lays out those blocks alone that are in view.
// `paint` gets each with its place in the whole, in which this text begins at `from`
function blocks(text, paint, from) {
  const nodes = [];
  if (text.length <= 2 * BLOCK) {
    nodes.push(make("span", text));
    paint(nodes[0], from);
    return nodes;
  }
  for (let at = 0, end; at < text.length; at = end) {
    end = text.indexOf("\n", at + BLOCK) + 1 || text.length;
    const node = make("span", text.slice(at, end), "block");
    paint(node, from + at);
    // The height until it is known: of lines that do not wrap
    node.style.containIntrinsicHeight = `auto ${node.textContent.split("\n").length * LINE_EM}em`;
    nodes.push(node);
  }
  return nodes;
}
function hexLines(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const text = row.map(byte => byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".");
    lines.push(at.toString(16).padStart(8, "0") + "  "
      + row.map(byte => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47) + "  "
      + text.join(""));
  }
  return lines.join("\n");
}
// The bytes, some at a time
function hexNodes(data) {
  let at = 0;
  const pre = make("pre", "", "hex"), more = button("", () => add());
  const add = () => {
    const next = data.subarray(at, at + MOST_HEX);
    pre.append((at ? "\n" : "") + hexLines(next).replace(/^[0-9a-f]{8}/gm,
      old => (parseInt(old, 16) + at).toString(16).padStart(8, "0")));
    at += next.length;
    more.hidden = at >= data.length;
    more.textContent = `more: ${bytes(data.length - at)} left`;
  };
  pre.tabIndex = 0;
  add();
  return [pre, more];
}
function toBase64(data) {
  let text = "";
  for (let at = 0; at < data.length; at += 32768)
    text += String.fromCharCode(...data.subarray(at, at + 32768));
  return btoa(text);
}
const VIEWS = {
  text: async ({type, read}) => pieces(decoded(await read(), type), MOST_TEXT),
  hex: async ({read}) => hexNodes(await read()),
  image: async ({kind, read}) => {
    const data = await read(), image = make("img", undefined, "body"), note = make("p", "", "soft");
    image.alt = "the body as an image";
    image.addEventListener("load", () => {
      note.textContent = `${image.naturalWidth} × ${image.naturalHeight}, ${bytes(data.length)}`;
    });
    image.addEventListener("error", () => { note.textContent = "cannot be read as an image"; });
    image.src = `data:${kind};base64,${toBase64(data)}`;
    return [image, note];
  },
  // The proxy has left out what could run or load. The frame has no rights and no origin, and
  // this page's policy holds in it too
  preview: async ({show}) => {
    const frame = make("iframe", undefined, "body");
    const address = URL.createObjectURL(new Blob([await show("preview")], {type: "text/html"}));
    frame.title = "the body as a page";
    frame.setAttribute("sandbox", "");
    frame.addEventListener("load", () => URL.revokeObjectURL(address), {once: true});
    frame.src = address;
    return [frame, make("p", "Text, structure and images in the body alone: no styles, scripts, "
      + "links or other addresses.", "soft")];
  },
};
