// Views of a body. All but the image show text; an image is decoded from a data: address,
// in which a browser runs nothing, and only if it is of one of these types.
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif",
  "image/bmp", "image/x-icon", "image/vnd.microsoft.icon"]);
const MOST_TEXT = 300000, MOST_HEX = 16384, MOST_JSON = 2000000;

function viewsOf(type, isText) {
  const kind = type.split(";")[0].trim().toLowerCase(), views = [];
  if (IMAGES.has(kind)) views.push("image");
  if (/[/+]json$|ndjson$/.test(kind)) views.push("JSON");
  if (kind === "application/x-www-form-urlencoded") views.push("form");
  if (kind === "multipart/form-data") views.push("form");
  if (/^(text\/html|application\/xhtml\+xml|image\/svg\+xml|.*[/+]xml)$/.test(kind))
    views.push("source");
  if (isText && !views.includes("source")) views.push("text");
  if (isText && !views.includes("JSON")) views.push("JSON");
  return [...views, "hex"];
}
function viewBody(place, data, type, isText) {
  const views = viewsOf(type, isText), bar = make("div", undefined, "bar"), shown = make("div");
  const select = view => {
    for (const node of bar.children)
      node.setAttribute("aria-pressed", String(node.textContent === view));
    shown.replaceChildren(...VIEWS[view](data, type));
  };
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "view as");
  shown.className = "shown";
  bar.append(...views.map(view => button(view, () => select(view))));
  place.replaceChildren(bar, shown);
  select(views[0]);
}

const decoded = data => new TextDecoder().decode(data);
// A long text in pieces: the next one at a click
function pieces(text, most, className) {
  const pre = make("pre", text.slice(0, most), className);
  if (text.length <= most) return [pre];
  let at = most;
  const more = button("", () => {
    pre.append(text.slice(at, at + most));
    at += most;
    if (at >= text.length) more.remove(); else label();
  });
  const label = () => { more.textContent = `more: ${bytes(text.length - at)} left`; };
  label();
  return [pre, more];
}
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch { /* perhaps one value a line */ }
  const lines = text.split("\n").filter(line => line.trim());
  try {
    return lines.map(line => JSON.stringify(JSON.parse(line), null, 2)).join("\n");
  } catch {
    return null;
  }
}
function readForm(data, type) {
  const boundary = /boundary="?([^";]+)"?/i.exec(type);
  if (!/^multipart\//i.test(type) || !boundary)
    return [...new URLSearchParams(decoded(data).trim())].map(([name, value]) => [name, value]);
  return decoded(data).split("--" + boundary[1]).slice(1, -1).map(part => {
    const at = part.search(/\r?\n\r?\n/), head = part.slice(0, at);
    const name = /[; ]name="([^"]*)"/i.exec(head), file = /filename="([^"]*)"/i.exec(head);
    return [(name ? name[1] : "?") + (file ? ` (file ${file[1]})` : ""),
      part.slice(at).trim().slice(0, 10000)];
  });
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
function toBase64(data) {
  let text = "";
  for (let at = 0; at < data.length; at += 32768)
    text += String.fromCharCode(...data.subarray(at, at + 32768));
  return btoa(text);
}
const VIEWS = {
  text: data => pieces(decoded(data), MOST_TEXT),
  source: data => pieces(decoded(data), MOST_TEXT),
  JSON: data => {
    const text = data.length <= MOST_JSON ? pretty(decoded(data)) : null;
    return text === null ? [make("p", "cannot be read as JSON", "bad"),
      ...pieces(decoded(data), MOST_TEXT)] : pieces(text, MOST_TEXT);
  },
  form: (data, type) => [table(readForm(data, type))],
  image: (data, type) => {
    const image = make("img", undefined, "body"), note = make("p", "", "soft");
    image.alt = "the body as an image";
    image.addEventListener("load", () => {
      note.textContent = `${image.naturalWidth} × ${image.naturalHeight}, ${bytes(data.length)}`;
    });
    image.addEventListener("error", () => { note.textContent = "cannot be read as an image"; });
    image.src = `data:${type.split(";")[0].trim().toLowerCase()};base64,${toBase64(data)}`;
    return [image, note];
  },
  hex: data => {
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
  },
};
