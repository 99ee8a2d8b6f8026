// Usage: node checks/tokenizer_parity.mjs PACKAGES OUT COUNT
// Encodes COUNT generated texts with the npm packages `tiktoken` and `js-tiktoken` (PACKAGES is the
// folder that holds node_modules) and writes what checks/check_parity.cc compares with:
//   OUT/NAME.tiktoken   the ranks as a tiktoken file
//   OUT/NAME.pattern    the pattern as the package has it
//   OUT/NAME.jsonl      one {"text", "ids"} a line
// NAME is a vocabulary of the packages, or `released`: Kimi K3's pattern, which stands in
// OUT/released.pattern already, on the ranks of o200k_base.
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const [packages, out, count] = process.argv.slice(2);
const require = createRequire(join(resolve(packages), "package.json"));
const { Tiktoken } = require("tiktoken/lite");
const { Tiktoken: JsTiktoken } = require("js-tiktoken/lite");

// splitmix32: the texts are a function of their number.
let state = 20240501;
function below(limit) {
  state = (state + 0x9e3779b9) | 0;
  let z = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
  return ((z ^ (z >>> 15)) >>> 0) % limit;
}
const pick = (list) => list[below(list.length)];
const range = (low, high) => () => String.fromCodePoint(low + below(high - low + 1));
const repeat = (make, most) => () => {
  const one = make();
  return one.repeat(1 + below(most));
};

const words = ("the of and question answer don't it's we'll they've I'm he'd you're O'NEIL'S camelCase XMLHttpRequest " +
  "iPhone naïve façade İstanbul ığdır çocuğun ağaç straße ÜBER Привет мир κόσμος שלום שָׁלוֹם مرحبا नमस्ते ไทย 日本語テキスト 한국어 " +
  "你好世界 人工智能 々〇 中文English混合 e\u0301te\u0301 Ǆ ǅ ǆ ﬁ ſ").split(" ");
const parts = [
  () => pick(words),
  () => " " + pick(words),
  () => pick(words) + pick(words),
  range(0x4e00, 0x9fa5),
  repeat(range(0x4e00, 0x9fa5), 30),
  range(0x20000, 0x2a6d6),
  range(0x3040, 0x30ff),
  range(0xac00, 0xd7a3),
  range(0x20, 0x7e),
  repeat(range(0x20, 0x7e), 40),
  range(0xa1, 0x17f),
  range(0x370, 0x3ff),
  range(0x400, 0x4ff),
  range(0x5d0, 0x5ea),
  range(0x300, 0x36f),
  repeat(range(0x300, 0x36f), 6),
  range(0x2000, 0x206f),
  range(0x2100, 0x218b),
  range(0x3000, 0x303f),
  range(0x1f300, 0x1f64f),
  () => "👩‍👩‍👧‍👦",
  () => "🇹🇷🇨🇳",
  () => String(below(10 ** (1 + below(9)))),
  repeat(() => String(below(10)), 60),
  range(0x660, 0x669),
  () => pick(["'", "'s", "'S", "'T", "'ll", "'LL", "'Ve", "'RE", "'M", "'d", "’s", "'ſ", "''", "'x"]),
  repeat(() => " ", 12),
  repeat(() => pick(["\n", "\r\n", "\r", "\t", "\v", "\f"]), 4),
  () => pick(["\u00a0", "\u1680", "\u180e", "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\u0085", "\x1c", "\x1f"]),
  () => pick(["...", "//", "\\", "->", "==", "<|endoftext|>", "[BOS]", "();", "#!/", "http://a.b/c?d=e&f", "€", "½", "Ⅷ", "²"]),
];

// Long runs stay below what the packages, whose joining is quadratic, do in good time.
const texts = ["", " ", "\n", "a", "a".repeat(1000), "A".repeat(500), " ".repeat(1000), "ab".repeat(400),
  "你".repeat(300), "7".repeat(3001), "!".repeat(500), "\n".repeat(500), "é".repeat(300), "aB".repeat(500)];
while (texts.length < Number(count)) {
  let text = "";
  for (let n = 1 + below(14); n > 0; --n) text += pick(parts)();
  texts.push(text);
}

// "! 0 TOKEN TOKEN ..." a line: tokens of consecutive ranks from the number on.
function ranksOf(packed) {
  const lines = [];
  for (const line of packed.split("\n").filter(Boolean)) {
    const [, first, ...tokens] = line.split(" ");
    tokens.forEach((token, i) => lines.push(`${token} ${Number(first) + i}`));
  }
  return lines.join("\n") + "\n";
}

function write(name, ranks, pattern, encode, keep = () => true) {
  writeFileSync(join(out, `${name}.tiktoken`), ranksOf(ranks));
  writeFileSync(join(out, `${name}.pattern`), pattern);
  const lines = texts.filter(keep).map((text) => JSON.stringify({ text, ids: Array.from(encode(text)) }));
  writeFileSync(join(out, `${name}.jsonl`), lines.join("\n") + "\n");
}

// JavaScript's \s lacks U+0085 and has U+FEFF; texts with these two are left to the other package.
const sameSpaces = (text) => !/[\u0085\ufeff]/.test(text);
for (const name of ["cl100k_base", "o200k_base"]) {
  const of = require(`tiktoken/encoders/${name}.json`);
  const rust = new Tiktoken(of.bpe_ranks, {}, of.pat_str);
  write(name, of.bpe_ranks, of.pat_str, (text) => rust.encode_ordinary(text));
  const own = require(`js-tiktoken/ranks/${name}`);
  const js = new JsTiktoken({ ...own, special_tokens: {} });
  write(`${name}_js`, own.bpe_ranks, of.pat_str, (text) => js.encode(text, [], []), sameSpaces);
}
const ranks = require("tiktoken/encoders/o200k_base.json").bpe_ranks;
const pattern = readFileSync(join(out, "released.pattern"), "utf8");
const released = new Tiktoken(ranks, {}, pattern);
write("released", ranks, pattern, (text) => released.encode_ordinary(text));
