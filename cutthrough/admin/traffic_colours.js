// Colours for the syntax of a body: of its blocks that are in view, so that a long body costs no
// more than a screen of it. Nothing of the text changes. Each regular expression takes what it has
// looked at, so that its time is linear, whatever the text is.
const MOST_COLOURED = 20000;            // characters of a block: a line may be as long as a body
const LEXERS = {
  json: /(?<key>"(?:[^"\\\n]|\\.)*"(?=\s*:))|(?<string>"(?:[^"\\\n]|\\.)*"?)|(?<word>\b(?:true|false|null)\b)|(?<number>-?\b\d[\d.eE+-]*)/g,
  graphql: /(?<comment>#[^\n]*)|(?<key>"(?:[^"\\\n]|\\.)*"(?=\s*:)|\b[_A-Za-z]\w*(?=\s*:))|(?<string>"(?:[^"\\\n]|\\.)*"?)|(?<word>\b(?:query|mutation|subscription|fragment|on|true|false|null)\b|\.\.\.|@\w+)|(?<number>\$\w+|-?\b\d[\d.eE+-]*)/g,
  markup: /(?<comment><!--[^]*?(?:-->|$)|<!\[CDATA\[[^]*?(?:\]\]>|$)|<[!?][^>]*>?)|<\/?(?<tag>[A-Za-z][^\s\/>"']*)(?<rest>(?:"[^"]*"|'[^']*'|[^"'>])*)>?/g,
};
const ATTRIBUTES = /(?<string>"[^"]*"|'[^']*')|(?<number>[^\s=\/"']+)/g;
const LEXER_OF = {json: "json", msgpack: "json", graphql: "graphql", html: "markup", xml: "markup"};

const painter = new IntersectionObserver(entries => {
  for (const {isIntersecting, target} of entries) {
    if (!isIntersecting) continue;
    painter.unobserve(target);
    target.paint();
  }
}, {rootMargin: "200px"});

// `outside`: of markup, ranges of the whole text that are none (see foreignParts); `from`: the
// node's place in it
function paintLater(node, lexer, outside, from) {
  node.paint = () => node.replaceChildren(...coloured(node.textContent, lexer, outside, from));
  painter.observe(node);
}
function coloured(text, lexer, outside, from) {
  const parts = [], whole = text;
  text = whole.slice(0, MOST_COLOURED);
  let at = 0;
  const plain = to => { if (to > at) parts.push(whole.slice(at, to)); at = Math.max(at, to); };
  const add = (begin, end, kind) => {
    if (begin < at || begin === end) return;
    plain(begin);
    parts.push(make("span", whole.slice(begin, end), "c-" + kind));
    at = end;
  };
  const lex = (begin, end) => {
    const tokens = LEXERS[lexer];
    tokens.lastIndex = begin;
    for (let match; (match = tokens.exec(text)) && match.index < end;) {
      const {tag, rest, ...others} = match.groups;
      if (tag === undefined) {
        const [kind] = Object.entries(others).find(([, value]) => value !== undefined);
        add(match.index, Math.min(end, tokens.lastIndex), kind);
      } else {
        const after = match.index + match[0].indexOf(tag) + tag.length;
        add(after - tag.length, after, "key");
        for (const word of rest.matchAll(ATTRIBUTES))
          add(after + word.index, after + word.index + word[0].length, word.groups.string
            ? "string" : "number");
      }
      if (match[0] === "") tokens.lastIndex++;
    }
  };
  let begin = 0;
  for (const [first, last, kind] of outside) {
    if (last <= from || first >= from + text.length) continue;
    const low = Math.max(0, first - from), high = Math.min(text.length, last - from);
    lex(begin, low);
    if (kind) add(low, high, kind);
    begin = Math.max(begin, high);
  }
  lex(begin, text.length);
  plain(whole.length);
  return parts;
}
// Comments, sections of characters, scripts and styles: begin and end, which may be in other
// blocks
function foreignParts(text) {
  const ranges = [], small = text.toLowerCase(), begins = /<!--|<!\[cdata\[|<(script|style)\b/g;
  for (let match; (match = begins.exec(small));) {
    const [mark, name] = match, open = name ? small.indexOf(">", match.index) + 1 : match.index;
    if (name && !open) break;
    const close = name ? `</${name}` : mark === "<!--" ? "-->" : "]]>";
    const at = small.indexOf(close, open), end = at < 0 ? text.length : name ? at : at + 3;
    ranges.push([open, end, name ? "" : "comment"]);
    begins.lastIndex = Math.max(end, match.index + 1);
  }
  return ranges;
}
